//! Loads whose address comes from another load, for the access trace. The frontend follows values through registers and
//! names them by the number of the fetch that they come from; 0 stands for none.

use super::ThreadTracer;

impl ThreadTracer {
    /// The address of the next access comes from fetch `after`. To be called with 0 after it, unless
    /// [`ThreadTracer::loaded`] or [`ThreadTracer::stored`] are.
    #[inline]
    pub fn wait_for(&mut self, after: u64) {
        if let Some(stream) = &mut self.stream {
            stream.wait_for(after);
        }
    }

    /// The fetch that the value comes from which was loaded from an address.
    #[inline]
    pub fn loaded(&mut self, address: u64) -> u64 {
        let stream = self.stream.as_mut();
        stream.map_or(0, |stream| stream.loaded(address))
    }

    /// A value that comes from fetch `after` was stored at an address.
    #[inline]
    pub fn stored(&mut self, address: u64, after: u64) {
        if let Some(stream) = &mut self.stream {
            stream.stored(address, after);
        }
    }
}
