// Rust to print: Vec, String, HashMap, enums, Option, traits.
// variants: rust
// flags: -C opt-level=0
use std::collections::{BTreeMap, HashMap};

#[derive(Debug)]
enum Shape {
    Circle { radius: f64 },
    Square(u32),
    Nothing,
}

struct Account {
    name: String,
    numbers: Vec<i32>,
    shape: Shape,
    limit: Option<u64>,
}

#[inline(never)]
fn show(account: &Account, ages: &HashMap<String, i32>, order: &BTreeMap<i32, &str>) -> usize {
    let total = account.numbers.iter().sum::<i32>(); // MARK: show
    total as usize + ages.len() + order.len() + account.name.len()
}

fn area(shape: &Shape) -> f64 {
    match shape {
        Shape::Circle { radius } => radius * radius, // MARK: circle
        Shape::Square(side) => f64::from(*side) * f64::from(*side),
        Shape::Nothing => 0.0,
    }
}

fn main() {
    let mut total = 0.0;
    for (number, shape) in [
        Shape::Circle { radius: 2.5 },
        Shape::Square(7),
        Shape::Nothing,
    ]
    .into_iter()
    .enumerate()
    {
        total += area(&shape);
        let account = Account {
            name: format!("account {number}"),
            numbers: (1..=4).map(|n| n * 11).collect(),
            shape,
            limit: (number == 1).then_some(500),
        };
        let ages = HashMap::from([("ada".to_owned(), 36)]);
        let order = BTreeMap::from([(1, "one"), (2, "two")]);
        total += show(&account, &ages, &order) as f64;
        println!("{} {:?} {:?}", account.name, account.shape, account.limit);
    }
    println!("{total}");
}
