//! `clew heap`, `clew alerts`, `clew why`, `clew diagnose`: in: the command line. Out: what a recording tells of memory, of everything
//! notable, and of the cause of a failure, as text or JSON.

mod alerts;
pub mod arguments;
pub mod delta;
mod heap;
mod page;
mod switches;
mod why;

pub use alerts::alerts;
pub use delta::delta;
pub use heap::heap;
pub use why::why;

/// So many columns a line has.
const WIDTH: usize = 110;

/// Text in lines of a usual width, all but the first indented.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let room = WIDTH.saturating_sub(indent);
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join(&format!("\n{}", " ".repeat(indent)))
}
