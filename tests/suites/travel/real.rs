//! Programs of the distribution, debugged without their sources: break in a library, go back to it.

use clew_tests::header::Ending;
use clew_tests::run::Job;
use clew_tests::scratch;
use libtest_mimic::{Failed, Trial};

use super::place::{self, BACK, FORTH, Place, has, require, same};

pub fn trials() -> Vec<Trial> {
    place::trials(
        "real",
        &[
            ("sqlite3", sqlite),
            ("python3", python),
            ("xz with threads", xz),
            ("bash and its children", bash),
        ],
    )
}

/// Stops at each call of a function of a library: the same backwards, from the end.
fn calls_of(place: &Place, function: &str, register: &str) -> Result<Vec<i64>, Failed> {
    let mut mi = place.mi_with(&["--at", "end"])?;
    mi.command(&format!("-break-insert {function}"))?;
    let look = |mi: &mut clew_tests::mi::Mi, _: &clew_tests::mi::Stop| mi.number(register);
    let mut back = place::all_stops(&mut mi, BACK, look)?;
    let forth = place::all_stops(&mut mi, FORTH, look)?;
    back.reverse();
    same(function, &back, &forth)?;
    require(!forth.is_empty(), || format!("{function} was never called"))?;
    Ok(forth)
}

fn sqlite(test: &str) -> Result<(), Failed> {
    let mut job = Job::new("/usr/bin/sqlite3", scratch::fresh(test)).args(["data.db"]);
    job.stdin = "create table t(a, b);\nbegin;\n\
                 with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000)\n\
                 insert into t select i, 'row ' || i from n;\ncommit;\nselect count(*), sum(a) from t;\n"
        .into();
    let place = Place::record(job, None, &Ending::Exit(0), &[])?;
    let written = calls_of(&place, "pwrite64", "$rdx")?;
    require(written.iter().all(|&size| size > 0), || {
        format!("{written:?}")
    })?;
    let text = place.batch_with(
        &["--at", "end"],
        "break fdatasync\nreverse-continue\nbacktrace 3\n\
                                                   info sharedlibrary\n",
    )?;
    has(&text, &["fdatasync", "libsqlite3"])
}

fn python(test: &str) -> Result<(), Failed> {
    let script = "print(sum(i * i for i in range(20000))); import os; os.getcwd()";
    let place = Place::program(test, "/usr/bin/python3", &["-c", script])?;
    let calls = calls_of(&place, "getcwd", "$rsi")?;
    require(!calls.is_empty(), || "never".into())?;
    let text = place.batch_with(
        &["--at", "end"],
        "break write if $rdi == 1\nreverse-continue\nx/s $rsi\n\
                                                   reverse-stepi\nx/i $pc\n",
    )?;
    has(&text, &["2666466670000", "=> 0x"])
}

fn xz(test: &str) -> Result<(), Failed> {
    let dir = scratch::fresh(test);
    let mut text = String::new();
    for number in 0..60_000 {
        text.push_str(&format!(
            "line {} of some text {}\n",
            number,
            number * 7919 % 1000
        ));
    }
    std::fs::write(dir.join("data"), text)?;
    let args = ["-T2", "--block-size=200000", "-1", "-k", "data"];
    let job = Job::new("/usr/bin/xz", dir).args(args);
    let place = Place::record(job, None, &Ending::Exit(0), &[])?;
    let text = place.batch_with(
        &["--at", "end"],
        "break lzma_stream_encoder_mt\nreverse-continue\ndelete\ntbreak pthread_create\ncontinue\n\
         tbreak pthread_create\ncontinue\nfinish\ninfo threads\n",
    )?;
    has(
        &text,
        &["lzma_stream_encoder_mt", "pthread_create", "* ", "Thread"],
    )?;
    require(
        text.matches("LWP").count() + text.matches("Thread").count() >= 3,
        || text.clone(),
    )
}

fn bash(test: &str) -> Result<(), Failed> {
    let script = "for i in 1 2 3; do x=$((i * 7)); done; echo $x; (exit 3); /bin/true; echo $?";
    let place = Place::program(test, "/bin/bash", &["--norc", "-c", script])?;
    let pids = super::files::pids(&place)?;
    require(pids.len() == 3, || format!("{pids:?}"))?;
    let mut mi = place.mi_with(&["--at", "end"])?;
    mi.command("-break-insert write")?;
    let look = |mi: &mut clew_tests::mi::Mi, _: &clew_tests::mi::Stop| mi.print("*(char *)$rsi");
    let written = place::all_stops(&mut mi, BACK, look)?;
    same("written", written.len(), 2)?;
    require(written[0].contains('0') && written[1].contains('2'), || {
        format!("{written:?}")
    })?;
    // A child that only exits, by its id.
    let text = place.batch_with(
        &["--pid", &pids[1].to_string(), "--at", "end"],
        "info proc mappings\nbacktrace\n",
    )?;
    has(&text, &["bash"])
}
