//! The translation of a piece of guest code, for people who look for a mistake in it. In: a guest pc. Out: its block as
//! text, made once more beside the one that runs.

use super::region::Region;
use super::room::{map_anywhere, unmap_code};
use super::{CodeCache, View};
use crate::memory::{Fetch as Fetched, Memory};
use crate::translate::checks::Checks;
use crate::translate::{self, Shape};

const ROOM: u64 = 256 << 10;

impl CodeCache {
    /// The block that begins there, if that is code.
    pub fn listing(&self, memory: &Memory, pc: u64) -> Option<String> {
        let Fetched::Executable(code) = memory.fetch(pc) else {
            return None;
        };
        let shape = Shape {
            mutable: !code.immutable,
            stub: false,
            single: None,
            optimise: true,
            shared: code.shared && !code.immutable,
            unchecked: true,
        };
        let mut region = Region::new(0..u64::MAX, map_anywhere(ROOM));
        let host = region.host.clone();
        let view = View::of(memory);
        let block = translate::translate(&mut region, &view, pc, shape, &Checks::default(), None);
        let text = block.map(|block| translate::dump::block(&region, &block));
        drop(region);
        unmap_code(&host);
        text
    }
}
