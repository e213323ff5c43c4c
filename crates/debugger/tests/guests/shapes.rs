// Values of Rust: each line that it prints is an expression, and the text that a debugger must show for it. Behind a
// slash, the way to a part of it.
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

#[allow(dead_code)]
#[derive(Clone, Copy)]
enum Shape {
    Empty,
    Circle(f64),
    Box { width: u32, height: u32 },
}

struct Point {
    x: i32,
    y: i32,
}

#[inline(never)]
fn look(argument: i32) {
    std::hint::black_box(argument);
}

fn main() {
    let text = "borrowed";
    let owned = String::from("owned");
    let numbers = vec![3u16, 4, 5];
    let words = vec![String::from("one"), String::from("two")];
    let slice = &numbers[1..];
    let point = Point { x: 1, y: -2 };
    let boxed = Box::new(Point { x: 10, y: 20 });
    let some = Some(7u32);
    let nothing: Option<u32> = None;
    let shape = Shape::Box { width: 2, height: 3 };
    let circle = Shape::Circle(1.5);
    let tuple = (1u8, true);
    let mut map: HashMap<u32, u64> = HashMap::new();
    for n in 0..100 {
        map.insert(n, u64::from(n) * 10);
    }
    let mut queue: VecDeque<u16> = VecDeque::with_capacity(4);
    queue.extend([9, 9, 9, 1]);
    queue.drain(..3);
    queue.extend([2, 3]);
    let waiting: VecDeque<String> = VecDeque::new();
    let mut ordered: BTreeMap<u16, String> = BTreeMap::new();
    for n in (0..2000u16).rev() {
        ordered.insert(n * 3, format!("o{n}"));
    }
    let few: BTreeMap<u8, u64> = [(9, 1), (3, 2), (5, 0)].into();
    let set: BTreeSet<i64> = [7, -1, 4].into();
    let no_keys: BTreeMap<u8, u64> = BTreeMap::new();
    look(5);
    println!("text = \"{text}\"");
    println!("owned = \"{owned}\"");
    println!("numbers = {{{}, {}, {}}}", numbers[0], numbers[1], numbers[2]);
    println!("numbers/[1] = {}", numbers[1]);
    println!("words = {{\"{}\", \"{}\"}}", words[0], words[1]);
    println!("slice = {{{}, {}}}", slice[0], slice[1]);
    println!("point/y = {}", point.y + 0 * point.x);
    println!("boxed/*/x = {}", boxed.x + 0 * boxed.y);
    if let Some(inner) = some {
        println!("some/0 = {inner}");
    }
    if let Shape::Box { width, height } = shape {
        println!("shape/width = {width}");
        println!("shape/height = {height}");
    }
    if let Shape::Circle(radius) = circle {
        println!("circle/0 = {radius}");
    }
    println!("tuple/0 = {}", tuple.0 + u8::from(!tuple.1));
    println!("queue = {{{}, {}, {}}}", queue[0], queue[1], queue[2]);
    println!("queue/[2] = {}", queue[2]);
    println!("waiting = {{{}}}", waiting.iter().cloned().collect::<String>());
    println!("map/[42] = {}", map[&42]);
    for n in [0, 1, 11, 12, 143, 144, 1000, 1999] {
        println!("ordered/[{}] = \"{}\"", n * 3, ordered[&(n * 3)]);
    }
    println!("few = {{[3] = {}, [5] = {}, [9] = {}}}", few[&3], few[&5], few[&9]);
    println!("set = {{-1, 4, {}}}", set.last().unwrap());
    println!("no_keys = {{{}}}", no_keys.values().map(u64::to_string).collect::<String>());
    std::hint::black_box((&nothing, &map, &queue, &waiting));
}
