// Values as Rust has them.
use std::hint::black_box;

pub static mut COUNTER: u32 = 7;
static NAME: &str = "clew";

#[derive(Clone, Copy)]
pub struct Point {
    pub x: i32,
    pub y: i64,
}

pub enum Shape {
    Nothing,
    Circle(u32),
    Rect { w: u16, h: u16 },
}

mod inner {
    pub static LEVEL: i8 = -3;
}

#[inline(never)]
fn stop(points: &[Point], shape: &Shape, empty: &Shape, maybe: Option<u32>, tuple: (u8, char)) -> i64 {
    let first = points[0];
    let none: Option<&u32> = None;
    black_box((&first, &none, shape, empty, &maybe, &tuple));
    black_box(first.y) // STOP
}

fn main() {
    let points = vec![Point { x: 1, y: 2 }, Point { x: -3, y: 4 }];
    unsafe { COUNTER += 1 };
    let rect = Shape::Rect { w: 3, h: 4 };
    black_box(Shape::Circle(1));
    let sum = stop(&points, &rect, &Shape::Nothing, black_box(Some(5)), (7, 'ß'));
    println!("{} {} {}", sum, NAME, black_box(inner::LEVEL));
}
