//! The extended state of a thread as XSAVE stores it. Where its parts lie is the processor's choice, and CPUID says
//! it: the mask registers of AVX-512 begin at byte 1088 on Intel's processors, after registers of MPX, and at 832 on
//! AMD's, which have none.
#![allow(unsafe_code)]

use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::sync::OnceLock;

use iced_x86::Register;

/// State that programs use and we save, as bits of XCR0: x87, SSE, AVX, AVX-512.
const USED: u64 = 0xe7;
/// Bytes that it takes at most.
pub const BYTES: usize = 2688;
/// Bytes that every processor stores at the same places: x87, SSE, and the header, which begins at [`HEADER`].
pub const LEGACY: usize = 576;
/// Where the header begins: bits of the parts that are stored; the others are in their initial state, zero.
pub const HEADER: usize = 512;

const SSE: u32 = 1;
const HIGH_YMM: u32 = 2;
const MASKS: u32 = 5;
const HIGH_ZMM: u32 = 6;
const MORE_ZMM: u32 = 7;
/// Number of parts of [`USED`], with gaps.
const PARTS: usize = 8;
/// Tiles of AMX, which frames have only if the program has asked the kernel for them.
const TILES: u32 = 18;
/// Parts that XCR0 can name: its last bit names none.
const NAMED: u32 = 63;

/// Storage for XSAVE; its size is a multiple of its alignment.
#[repr(C, align(64))]
pub struct Xstate(pub [u8; BYTES]);

/// Where the parts of the state lie.
#[derive(Debug)]
pub struct Layout {
    /// The parts that are saved, as bits of XCR0.
    pub mask: u64,
    /// Bytes from the beginning to the end of the last part.
    pub len: usize,
    /// Bytes of the state in the frames of signal handlers, which has parts that we do not use: on AMD's processors
    /// without AVX-512 too, protection keys lie 1,600 bytes behind the vectors.
    pub in_frames: usize,
    starts: [usize; PARTS],
}

impl Layout {
    /// For a processor and a kernel with the parts in `enabled`, which lie at the offsets and have the sizes that
    /// `place` returns. `None` if they take more than [`BYTES`].
    fn of(enabled: u64, place: impl Fn(u32) -> (usize, usize)) -> Option<Self> {
        let mask = enabled & USED;
        let (mut len, mut starts) = (LEGACY, [0; PARTS]);
        for part in (HIGH_YMM..PARTS as u32).filter(|part| mask >> part & 1 != 0) {
            let (start, size) = place(part);
            starts[part as usize] = start;
            len = len.max(start + size);
        }
        let others =
            (PARTS as u32..NAMED).filter(|&part| part != TILES && enabled >> part & 1 != 0);
        let in_frames = others.fold(len, |len, part| {
            let (start, size) = place(part);
            len.max(start + size)
        });
        (len <= BYTES).then_some(Self {
            mask,
            len,
            in_frames,
            starts,
        })
    }

    /// That of this processor; `None` if it cannot be used: it lacks XSAVE or XSAVEOPT, or the state is too large.
    pub fn of_processor() -> Option<&'static Self> {
        static LAYOUT: OnceLock<Option<Layout>> = OnceLock::new();
        let found = || {
            if !is_x86_feature_detected!("xsave") || !is_x86_feature_detected!("xsaveopt") {
                return None;
            }
            // SAFETY: the kernel has enabled XSAVE.
            let enabled = unsafe { _xgetbv(0) };
            Self::of(enabled, |part| {
                let answer = __cpuid_count(0xd, part);
                (answer.ebx as usize, answer.eax as usize)
            })
        };
        LAYOUT.get_or_init(found).as_ref()
    }

    /// The bytes of a part of `stored`, `None` if it is zero.
    fn part<'a>(&self, stored: &'a Xstate, part: u32) -> Option<&'a [u8]> {
        let present = u64::from(stored.0[HEADER]) & self.mask;
        let start = match part {
            SSE => 160,
            _ => self.starts[part as usize],
        };
        (present >> part & 1 != 0).then(|| &stored.0[start..])
    }

    /// The bytes of a vector register.
    pub fn vector(&self, stored: &Xstate, register: Register) -> [u8; 64] {
        let number = register.number();
        let mut bytes = [0; 64];
        if register.is_mm() {
            bytes[..8].copy_from_slice(&stored.0[32 + 16 * number..][..8]);
            return bytes;
        }
        let pieces = match number {
            0..16 => [
                (SSE, 0, 16, number),
                (HIGH_YMM, 16, 16, number),
                (HIGH_ZMM, 32, 32, number),
            ],
            _ => [(MORE_ZMM, 0, 64, number - 16); 3],
        };
        for (part, to, len, number) in pieces {
            if let Some(from) = self.part(stored, part) {
                bytes[to..to + len].copy_from_slice(&from[len * number..][..len]);
            }
        }
        bytes
    }

    /// The value of a mask register.
    pub fn mask_register(&self, stored: &Xstate, register: Register) -> u64 {
        let stored = self.part(stored, MASKS);
        let bytes = stored.and_then(|from| from[8 * register.number()..].first_chunk());
        bytes.map_or(0, |&bytes| u64::from_le_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::arch::asm;

    use super::*;

    type Places = [(usize, usize); PARTS];

    /// Offsets and sizes by CPUID leaf 13, where the mask registers are at `masks`.
    const fn places(masks: usize) -> Places {
        let mut places = [(0, 0); PARTS];
        places[HIGH_YMM as usize] = (576, 256);
        places[MASKS as usize] = (masks, 64);
        places[HIGH_ZMM as usize] = (masks + 64, 512);
        places[MORE_ZMM as usize] = (masks + 576, 1024);
        places
    }

    /// Where `places` says; protection keys at `keys`, other parts far behind.
    fn of(places: &Places, keys: usize) -> impl Fn(u32) -> (usize, usize) {
        move |part| match (places.get(part as usize), part) {
            (Some(&place), _) => place,
            (None, 9) => (keys, 8),
            (None, _) => (4096, 8192),
        }
    }

    /// Intel's Cascade Lake, Ice Lake and Sapphire Rapids; AMD's Zen 4.
    const PROCESSORS: [Places; 2] = [places(1088), places(832)];

    #[test]
    fn registers_are_found_where_each_processor_stores_them() {
        for (places, len) in PROCESSORS.iter().zip([2688, 2432]) {
            let layout = Layout::of(0x2e7, of(places, len)).expect("it fits");
            assert_eq!((layout.mask, layout.len), (USED, len));
            assert_eq!(layout.in_frames, len + 8);
            let mut stored = Xstate([0; BYTES]);
            stored.0[HEADER] = USED as u8;
            let mut put = |at: usize, len: usize, value| stored.0[at..at + len].fill(value);
            put(160 + 16 * 9, 16, 1);
            put(576 + 16 * 9, 16, 2);
            put(places[HIGH_ZMM as usize].0 + 32 * 9, 32, 3);
            put(places[MORE_ZMM as usize].0 + 64 * 4, 64, 4);
            put(places[MASKS as usize].0 + 8 * 7, 8, 5);
            let low = layout.vector(&stored, Register::ZMM9);
            assert_eq!((low[15], low[16], low[31]), (1, 2, 2));
            assert_eq!((low[32], low[63]), (3, 3));
            assert_eq!(layout.vector(&stored, Register::XMM20), [4; 64]);
            assert_eq!(layout.vector(&stored, Register::ZMM8), [0; 64]);
            let mask = layout.mask_register(&stored, Register::K7);
            assert_eq!(mask, u64::from_le_bytes([5; 8]));
            // Parts in their initial state have not been stored.
            stored.0[HEADER] = 3;
            assert_eq!(layout.mask_register(&stored, Register::K7), 0);
            assert_eq!(layout.vector(&stored, Register::XMM20), [0; 64]);
            assert_eq!(layout.vector(&stored, Register::ZMM9)[16..], [0; 48]);
        }
    }

    #[test]
    fn processors_without_vectors_store_less() {
        let [places, _] = &PROCESSORS;
        let found = |enabled| {
            let layout = Layout::of(enabled, of(places, 2432)).expect("it fits");
            (layout.len, layout.in_frames)
        };
        assert_eq!((found(3), found(7)), ((576, 576), (832, 832)));
        // AMD's Zen 3: protection keys lie where they do on Zen 4. Tiles are not in frames.
        assert_eq!(found(0x207), (832, 2440));
        assert_eq!(found(0x4_0207), (832, 2440));
        assert!(Layout::of(USED, |part| (4096 * part as usize, 64)).is_none());
    }

    #[test]
    fn registers_are_found_where_this_processor_stores_them() {
        let Some(layout) = Layout::of_processor() else {
            return;
        };
        let mut stored = Xstate([0; BYTES]);
        let at = stored.0.as_mut_ptr();
        let numbers: Vec<u8> = (0..64).collect();
        let from = numbers.as_ptr();
        let (low, high) = (layout.mask as u32, 0);
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: changes registers that it names, and the area.
            unsafe {
                asm!(
                    "vmovdqu64 zmm3, [{from}]", "vmovdqu64 zmm20, [{from}]", "kmovw k6, {mask:e}", "xsave64 [{at}]",
                    from = in(reg) from, at = in(reg) at, mask = in(reg) 0x1234, in("eax") low, in("edx") high,
                    out("zmm3") _, out("zmm20") _, out("k6") _,
                );
            }
            assert_eq!(layout.mask_register(&stored, Register::K6), 0x1234);
            assert_eq!(layout.vector(&stored, Register::ZMM3)[..], numbers);
            assert_eq!(layout.vector(&stored, Register::ZMM20)[..], numbers);
        } else if is_x86_feature_detected!("avx") {
            // SAFETY: as above.
            unsafe {
                asm!(
                    "vmovdqu ymm3, [{from}]", "xsave64 [{at}]",
                    from = in(reg) from, at = in(reg) at, in("eax") low, in("edx") high, out("ymm3") _,
                );
            }
            assert_eq!(layout.vector(&stored, Register::YMM3)[..32], numbers[..32]);
        }
    }
}
