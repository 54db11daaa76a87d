//! CRC-32 of the journal's frames: pure.
//!
//! A journal is written inside the traced program, where the native frontend has stored only the lower parts of the
//! vector registers. Libraries for this checksum choose instructions that overwrite the upper parts, if the processor
//! has them, so it is computed from tables here.

/// Tables: the first for a byte, each next one for a byte that is followed by one more.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The CRC-32 of `bytes`, as in gzip.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let low = u32::from_le_bytes([word[0], word[1], word[2], word[3]]) ^ crc;
        let [a, b, c, d] = low.to_le_bytes();
        let parts = [a, b, c, d, word[4], word[5], word[6], word[7]];
        crc = 0;
        for (part, table) in parts.iter().zip(TABLES.iter().rev()) {
            crc ^= table[usize::from(*part)];
        }
    }
    for byte in words.remainder() {
        crc = crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::crc32;

    #[test]
    fn it_is_the_usual_checksum() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let bytes: Vec<u8> = (0..1000_u32).map(|n| (n * n / 8) as u8).collect();
        for len in (0..64).chain([999, 1000]) {
            assert_eq!(
                crc32(&bytes[..len]),
                crc32fast::hash(&bytes[..len]),
                "{len}"
            );
        }
    }
}
