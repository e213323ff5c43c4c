//! What the policies promise.

use super::*;
use clew_recording::script::Script;

impl Standings for Vec<Standing> {
    fn of(&mut self, slot: usize) -> &mut Standing {
        &mut self[slot]
    }
    fn whose(&self, slot: usize) -> (ThreadId, Point) {
        (slot as ThreadId, Point::default())
    }
}

fn policy(sched: Sched, seed: u64) -> Policy {
    let options = Options {
        sched,
        seed: Some(seed),
        ..Options::default()
    };
    Policy::new(&options, 0)
}

#[test]
fn a_seed_is_a_schedule() {
    for sched in [Sched::Fair, Sched::Random, Sched::Pct] {
        let lengths = |seed, lineage| {
            let options = Options {
                sched,
                seed: Some(seed),
                ..Options::default()
            };
            let mut policy = Policy::new(&options, lineage);
            let decide = |_| {
                (
                    policy.turn_length(&Standing::default()),
                    policy.ending(false),
                )
            };
            (0..50).map(decide).collect::<Vec<_>>()
        };
        assert_eq!(lengths(7, 0), lengths(7, 0));
        assert_ne!(lengths(7, 0), lengths(8, 0));
        assert_ne!(lengths(7, 0), lengths(7, lineage_of_child(0, 0)));
    }
}

#[test]
fn random_turns_are_short_and_long() {
    let mut policy = policy(Sched::Random, 1);
    let lengths: Vec<u64> = (0..1000)
        .map(|_| policy.turn_length(&Standing::default()))
        .collect();
    let longest = 1 << policy.octaves;
    assert!(lengths.contains(&0) && lengths.iter().any(|&l| l > longest / 2));
    assert!(lengths.iter().all(|&l| l < longest));
    // By seed some runs have short turns only; none has longer ones than the run is.
    let octaves = |length| {
        let options = |seed| Options {
            sched: Sched::Random,
            seed: Some(seed),
            length,
            ..Options::default()
        };
        let all = (0..200).map(|seed| Policy::new(&options(seed), 0).octaves);
        let all: std::collections::BTreeSet<u64> = all.collect();
        (all.first().copied(), all.last().copied())
    };
    assert_eq!(octaves(None), (Some(1), Some(OCTAVES)));
    assert_eq!(octaves(Some(1_500)), (Some(1), Some(10)));
}

#[test]
fn any_of_sixteen_instructions_can_be_last() {
    let mut fair = policy(Sched::Fair, 3);
    let mut seen = [0; 16];
    for _ in 0..2000 {
        seen[fair.ending(false).most as usize] += 1;
    }
    assert!(seen.iter().all(|&n| n > 0) && seen[0] > 400);
    let mut hunting = policy(Sched::Pct, 3);
    let mut seen = [0; 512];
    let mut aims = std::collections::HashMap::new();
    for _ in 0..2_000_000 {
        let ending = hunting.ending(false);
        *aims.entry(format!("{:?}", ending.aim)).or_insert(0) += 1;
        if ending.aim == Aim::Steps {
            seen[ending.most as usize] += 1;
        }
    }
    assert!(seen.iter().all(|&n| n > 0));
    assert!(seen[..16].iter().sum::<u32>() > 150_000);
    assert_eq!(aims.len(), 1 + 3 * MOST_COUNTED as usize);
    assert!(aims.values().all(|&n| n > 5_000), "{aims:?}");
}

#[test]
fn change_points_lie_within_the_run() {
    let points = |length, depth| {
        let options = |seed| Options {
            sched: Sched::Pct,
            seed: Some(seed),
            depth: Some(depth),
            length,
            ..Options::default()
        };
        let of = |seed| Policy::new(&options(seed), 0).points;
        (0..300).map(of).collect::<Vec<_>>()
    };
    let all = points(Some(3_000), 3);
    assert!(all.iter().all(|points| points.len() == 2));
    let each = || all.iter().flatten();
    assert!(each().all(|&point| point < 3_000));
    let early = each().filter(|&&point| point < 300).count();
    assert!(
        (30..90).contains(&early),
        "{early} of 600 in the first tenth"
    );
    let guessed = points(None, 2);
    let early = guessed.iter().filter(|points| points[0] < 4_000).count();
    assert!(early > 30, "{early} of 300 early");
}

#[test]
fn nobody_is_passed_over_for_ever() {
    let mut policy = policy(Sched::Pct, 9);
    policy.points.clear();
    let mut standings = vec![Standing::default(); 2];
    standings[0].priority = Some(-1);
    let mut queue = VecDeque::from([0]);
    // Threads come and go, all of them with priorities above the first's.
    let mut rounds = 0;
    loop {
        standings[1].priority = Some(HIGH + rounds);
        queue.push_back(1);
        if policy.next(&mut queue, None, &mut standings) == Some(0) {
            break;
        }
        rounds += 1;
    }
    assert!((i64::from(PATIENCE)..=i64::from(PATIENCE) * 16).contains(&rounds));
}

#[test]
fn what_comes_from_outside_shifts_nothing() {
    let (mut quiet, mut disturbed) = (policy(Sched::Random, 5), policy(Sched::Random, 5));
    for _ in 0..20 {
        disturbed.ending(true);
        let standing = Standing::default();
        assert_eq!(
            quiet.turn_length(&standing),
            disturbed.turn_length(&standing)
        );
    }
}

#[test]
fn spinning_is_noticed_and_computing_is_not() {
    let registers = |counter: u64, sum: u64| {
        let mut registers = [7; 16];
        (registers[1], registers[2]) = (counter, sum);
        registers
    };
    let mut standing = Standing::default();
    assert!(!standing.turn_ended(0x1000, &registers(1, 1), true));
    assert!(standing.turn_ended(0x1000, &registers(1, 1), true));
    // A counter in the loop: it takes longer to be sure.
    let mut standing = Standing::default();
    let turns: Vec<bool> = (0..4)
        .map(|n| standing.turn_ended(0x1000 + n, &registers(n, 1), true))
        .collect();
    assert_eq!(turns, [false, false, true, true]);
    // System calls, code that moves about, more that changes.
    let mut standing = Standing::default();
    assert!((0..5).all(|_| !standing.turn_ended(0x1000, &registers(1, 1), false)));
    assert!((0..5).all(|n| !standing.turn_ended(0x1000 * n, &registers(1, 1), true)));
    assert!((0..5).all(|n| !standing.turn_ended(0x1000, &registers(n, n), true)));
}

#[test]
fn highest_priority_runs_until_it_changes() {
    let mut policy = policy(Sched::Pct, 9);
    let mut standings = vec![Standing::default(); 3];
    let mut queue = VecDeque::from([1, 2]);
    let first = policy.next(&mut queue, Some(0), &mut standings);
    let current = first.unwrap_or(0);
    if first.is_some() {
        queue.push_back(0);
    }
    // It stays, until a change point.
    assert_eq!(policy.next(&mut queue, Some(current), &mut standings), None);
    policy.count_work(2_000_000);
    let second = policy.next(&mut queue, Some(current), &mut standings);
    assert!(second.is_some() && second != Some(current));
}

#[test]
fn one_that_never_waits_is_lowered_in_the_end() {
    let mut policy = policy(Sched::Pct, 9);
    policy.points.clear();
    let mut standings = vec![Standing::default(); 2];
    standings[0].priority = Some(HIGH + 5);
    standings[1].priority = Some(HIGH + 1);
    let mut queue = VecDeque::from([1]);
    let goes = |_| policy.next(&mut queue, Some(0), &mut standings).is_some();
    let turns = (0..100).position(goes);
    assert_eq!(turns, Some(TURNS_IN_A_ROW as usize - 1));
    assert!(standings[0].priority < Some(0));
}

#[test]
fn a_script_is_for_one_process() {
    let script = Script {
        process: vec![1],
        ..Script::default()
    };
    let options = Options {
        sched: Sched::Script,
        script: Some(script.into()),
        ..Options::default()
    };
    let followed = |lineage| Policy::new(&options, lineage).follower.is_some();
    assert!(followed(lineage_of(&[1])));
    for other in [&[][..], &[0], &[1, 0]] {
        assert!(!followed(lineage_of(other)));
        let policy = Policy::new(&options, lineage_of(other));
        assert!(policy.watches_time() && !policy.hunts());
    }
}
