//! What is told of a place is what the program itself knows of it: it prints its values, and a debugger that stands before
//! that must tell the same. Stacks are compared with gdb's.

mod common;

use clew_debugger::{Debugger, Direction, Node, ScopeKind, Spot, StopReason, ValueId};
use common::Guest;

/// LLVM's library for C++ instead of GNU's.
const LLVM: [&str; 10] = [
    "-O0",
    "-std=c++17",
    "-nostdinc++",
    "-isystem/usr/lib/llvm-14/include/c++/v1",
    "-nodefaultlibs",
    "-lc++",
    "-lc++abi",
    "-lm",
    "-lc",
    "-lgcc_s",
];

fn main() {
    let values: [(&str, &[&str], usize); 4] = [
        ("shapes.cpp", &["-O0", "-std=c++17"], 48),
        ("shapes.cpp", &["-O0", "-std=c++17", "-gdwarf-4"], 48),
        ("shapes.cpp", &LLVM, 48),
        ("shapes.rs", &["-Copt-level=0"], 17),
    ];
    let mut tests: Vec<_> = values
        .map(|(source, flags, least)| {
            let library = match flags.contains(&"-lc++") {
                true => " with LLVM's library".into(),
                false => flags.join(""),
            };
            let name = format!("values/{source}{library}");
            common::test(name, move || shown(source, flags, least))
        })
        .into();
    tests.push(common::test("scopes", scopes));
    tests.push(common::test("stacks/-O0", || stacks(&["-O0"])));
    tests.push(common::test("stacks/-O2", || stacks(&["-O2"])));
    tests.push(common::test("paging", paging));
    common::tests(tests)
}

/// Goes to where `look` is called, and one frame out.
fn at_look(guest: &Guest) -> (Debugger, u32) {
    let mut debugger = guest.open();
    let stop = debugger.run_to(Direction::Forward, &Spot::Function("look".into()));
    assert_eq!(stop.unwrap().reason, StopReason::Arrived);
    let thread = debugger.thread();
    (debugger, thread)
}

fn shown(source: &str, flags: &[&str], least: usize) {
    let guest = Guest::new(source, flags);
    let (mut debugger, thread) = at_look(&guest);
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in guest.output.lines() {
        let (what, expected) = line.split_once(" = ").unwrap();
        let mut way = what.split('/');
        let expression = way.next().unwrap();
        let mut node = debugger.evaluate(thread, 1, expression).unwrap();
        for part in way {
            node = child(&mut debugger, &node, part)
                .unwrap_or_else(|| panic!("{what}: {} has no {part}", node.text));
        }
        if node.text != expected {
            wrong.push(format!(
                "{what}\n  itself: {expected}\n    told: {}",
                node.text
            ));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= least, "{count}");
}

fn child(debugger: &mut Debugger, node: &Node, name: &str) -> Option<Node> {
    let children = debugger.children(node.id?, 0, 10_000).unwrap();
    assert_eq!(children.len() as u64, node.children);
    children.into_iter().find(|child| child.name == name)
}

fn scopes() {
    let guest = Guest::new("shapes.cpp", &["-O0", "-std=c++17"]);
    let (mut debugger, thread) = at_look(&guest);
    let inner = debugger.scopes(thread, 0).unwrap();
    let of = |kind| inner.iter().find(|scope| scope.kind == kind).unwrap();
    let arguments = &of(ScopeKind::Arguments).variables;
    let texts: Vec<(&str, &str, &str)> = arguments
        .iter()
        .map(|node| (node.name.as_str(), node.of.as_str(), node.text.as_str()))
        .collect();
    assert_eq!(texts[0], ("argument", "int", "12"));
    assert_eq!(texts[1].0, "name");
    assert_eq!(texts[1].2, "\"hello \\\"you\\\"\\n\"");
    let statics = &of(ScopeKind::Statics).variables;
    let counter = statics.iter().find(|node| node.name == "counter").unwrap();
    assert_eq!((counter.text.as_str(), counter.size), ("77", Some(4)));
    let registers = &of(ScopeKind::Registers).variables;
    let rip = registers.iter().find(|node| node.name == "rip").unwrap();
    let here = debugger.here().unwrap();
    assert_eq!(rip.text, format!("{:#x}", here.location.address));
    // The frame around it has its own.
    let outer = debugger.scopes(thread, 1).unwrap();
    let locals = outer.iter().find(|scope| scope.kind == ScopeKind::Locals);
    let numbers = locals.unwrap().variables.iter();
    let numbers = numbers.clone().find(|node| node.name == "numbers").unwrap();
    assert_eq!((numbers.text.as_str(), numbers.children), ("{1, 2, 3}", 3));
    // All of it is data for whoever shows it.
    let json = serde_json::to_value(&outer).unwrap();
    assert_eq!(json[1]["kind"], "locals");
    assert!(debugger.scopes(thread, 99).is_err());
    // Values belong to their position.
    let id = numbers.id.unwrap();
    let there = here.position;
    debugger.seek("start").unwrap();
    assert!(debugger.children(id, 0, 1).is_err());
    assert!(debugger.children(ValueId(u64::MAX), 0, 1).is_err());
    assert_eq!(debugger.seek(&there).unwrap().position, there);
    assert!(debugger.seek("nowhere").is_err());
}

fn paging() {
    let guest = Guest::new("shapes.cpp", &["-O0", "-std=c++17"]);
    let (mut debugger, thread) = at_look(&guest);
    for (expression, value) in [("many", 990 * 990), ("queue", 230 + 7), ("prices", 115)] {
        let node = debugger.evaluate(thread, 1, expression).unwrap();
        assert!(node.numbered, "{expression}");
        let from = match expression {
            "many" => 990,
            _ => 230,
        };
        let page = debugger.children(node.id.unwrap(), from, 5).unwrap();
        assert_eq!(page.len(), 5, "{expression}");
        assert_eq!(page[0].text, value.to_string(), "{expression}");
        let end = debugger.children(node.id.unwrap(), node.children - 2, 5);
        assert_eq!(end.unwrap().len(), 2, "{expression}");
    }
}

/// Each frame's function and line, inlined ones too, as gdb sees them.
fn stacks(flags: &[&str]) {
    let guest = Guest::new("lines.c", flags);
    let gdb = guest.gdb(
        r#"
gdb.execute('set breakpoint pending on')
gdb.execute('break deepest')
gdb.execute('run >/dev/null')
frame = gdb.newest_frame()
while frame and frame.name() != 'main':
    print('@', frame.name(), frame.find_sal().line)
    frame = frame.older()
print('@', frame.name(), frame.find_sal().line)
"#,
    );
    let mut debugger = guest.open();
    let spot = Spot::Function("deepest".into());
    debugger.run_to(Direction::Forward, &spot).unwrap();
    let stack = debugger.stack(debugger.thread()).unwrap();
    let ours: Vec<String> = stack
        .frames
        .iter()
        .map(|frame| {
            let location = &frame.location;
            let name = location.function.clone().unwrap_or_default();
            format!("{name} {}", location.line.unwrap_or(0))
        })
        .take(gdb.len())
        .collect();
    assert_eq!(ours, gdb);
    assert!(gdb.len() >= 3, "{gdb:?}");
}
