//! C++ with its containers, and Rust.

use super::*;

pub const CPP: &str = "#include <map>
#include <string>
#include <vector>
#include <cstdio>
namespace shop {
struct Cart {
    std::vector<int> prices;
    std::map<std::string, int> names;
    int total = 0;
    void add(const std::string &name, int price) {
        prices.push_back(price);
        names[name]++;
        total += price;
    }
};
}
int main()
{
    shop::Cart cart;
    cart.add(\"tea\", 3);
    cart.add(\"milk\", 4);
    cart.add(\"tea\", 5);
    printf(\"%d\\n\", cart.total);
}
";

pub fn cpp(optimised: &str, place: &str) -> Result<(), Failed> {
    let bench = Bench::text(&format!("cpp{optimised}"), &[optimised], CPP, "cc")?;
    bench.record(&[]);
    let text = "printf(\"%s %d %zu %d\\n\", name.c_str(), price, prices.size(), total); \
                std::map<std::string, int> mine; mine[name] = price; printf(\"%zu\\n\", mine.size() + this->names.size());";
    let outcome = bench.probe(&["--at", place, text]);
    same(
        &told(&outcome)?,
        "tea 3 0 0\n1\nmilk 4 1 3\n2\ntea 5 2 7\n3\n",
        &outcome,
    )
}

/// The number of the line that ends with a comment.
pub fn line_with(text: &str, comment: &str) -> usize {
    let found = text.lines().position(|line| line.ends_with(comment));
    found.map_or(0, |at| at + 1)
}

/// Members of templates, virtual calls, references, namespaces; the program's functions write, and nothing stays.
pub fn wide() -> Result<(), Failed> {
    let file = sources().join("cpp/wide.cc");
    let text = fs::read_to_string(&file)?;
    let bench = Bench::new("wide", "g++", &["-O0"], &[file])?;
    bench.record(&[]);
    let all = "printf(\"%zu %d %d\\n\", table.size(), a::b::deep, hidden); int two = a::b::twice(count); \
               for (auto &one : table) printf(\"%s=%d\\n\", one.first.c_str(), one.second); \
               std::cout << box.inside << two << hidden << std::endl;";
    let places = [
        (
            "// references",
            "printf(\"%d %d %zu %d %d\\n\", sum, count, all.size(), one->id, one->area());",
        ),
        (
            "// a template's member",
            "printf(\"%s %d %d %d\\n\", inside.c_str(), n, plus, this->n);",
        ),
        ("// all of it", all),
    ];
    let places =
        places.map(|(comment, code)| (format!("wide.cc:{}", line_with(&text, comment)), code));
    let args: Vec<&str> = places
        .iter()
        .flat_map(|(place, code)| ["--at", place, code])
        .collect();
    let outcome = bench.probe(&args);
    let expected = "hello 1 2 1\n0 0 2 7 4\n4 1 2 7 9\n2 9 5\nx=3\ny=4\nhello!46\n";
    same(&told(&outcome)?, expected, &outcome)
}

pub const RUST: &str = "struct Point { x: i32, y: i64 }
#[inline(never)]
fn weigh(p: &Point, scale: i32) -> i64 {
    p.y + (p.x * scale) as i64
}
fn main() {
    let mut sum = 0;
    for n in 0..3 {
        sum += weigh(&Point { x: n, y: 2 }, 10);
    }
    println!(\"{sum}\");
}
";

/// A program that isn't C: its variables by types from debugging information.
pub fn rust() -> Result<(), Failed> {
    let dir = scratch::root().join("probe.rust.source");
    fs::create_dir_all(&dir)?;
    let file = dir.join("program.rs");
    fs::write(&file, RUST)?;
    let dir = scratch::fresh("probe.rust");
    let program = dir.join("program");
    let mut command = Command::new("rustc");
    command
        .args(["-g", "-C", "panic=abort", "-o"])
        .arg(&program);
    let done = command.arg(&file).output()?;
    check_compiled(&done)?;
    let bench = Bench::of(program, dir);
    bench.record(&[]);
    let code = "printf(\"%d %ld %d\\n\", p->x, p->y, scale);";
    let outcome = bench.probe(&["--at", "program.rs:4", code]);
    same(&told(&outcome)?, "0 2 10\n1 2 10\n2 2 10\n", &outcome)
}
