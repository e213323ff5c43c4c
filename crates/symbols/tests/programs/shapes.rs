// Modules, generics, traits, closures, inlined iterators.
mod geometry {
    pub trait Area {
        fn area(&self) -> u64;
    }
    pub struct Rect {
        pub w: u64,
        pub h: u64,
    }
    pub struct Square<T>(pub T);
    impl Area for Rect {
        #[inline(never)]
        fn area(&self) -> u64 {
            self.w * self.h
        }
    }
    impl<T: Copy + Into<u64>> Area for Square<T> {
        #[inline(never)]
        fn area(&self) -> u64 {
            let side: u64 = self.0.into();
            side * side
        }
    }
    impl Rect {
        #[inline(never)]
        pub fn grown(&self, by: u64) -> Rect {
            Rect { w: self.w + by, h: self.h + by }
        }
    }
}

use geometry::{Area, Rect, Square};

#[inline(never)]
fn total(shapes: &[Box<dyn Area>]) -> u64 {
    shapes.iter().map(|shape| shape.area()).filter(|area| area % 2 == 0).sum()
}

#[inline(never)]
fn generic<T: std::fmt::Debug>(value: T) -> usize {
    format!("{value:?}").len()
}

fn main() {
    let n = std::env::args().count() as u64;
    let shapes: Vec<Box<dyn Area>> =
        vec![Box::new(Rect { w: n, h: 4 }.grown(1)), Box::new(Square(n as u32)), Box::new(Square(7u8))];
    let sum = total(&shapes) + generic(n) as u64 + generic("text") as u64;
    std::process::exit((sum == 0) as i32);
}
