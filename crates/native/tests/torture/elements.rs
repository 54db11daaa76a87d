//! Elements that masks select are counted by their number, wherever the processor's state is stored: each instruction
//! is run with no, three and all elements, and what the numbers of accesses differ by is known.

use crate::processors;
use crate::trial::{self, Failure};

/// How often each instruction is run.
const TIMES: u64 = 1000;

struct Form {
    extension: &'static str,
    code: &'static str,
    /// Bytes of an element, and their number.
    elements: (usize, usize),
    /// Accesses with three elements, and with all.
    accesses: [u64; 2],
}

const fn form(
    extension: &'static str,
    code: &'static str,
    elements: (usize, usize),
    accesses: [u64; 2],
) -> Form {
    Form {
        extension,
        code,
        elements,
        accesses,
    }
}

/// The mask is in xmm3 or ymm3, and in k3.
const FORMS: [Form; 10] = [
    form(
        "sse2",
        "lea rdi, [r15 + 8]; maskmovdqu xmm1, xmm3",
        (1, 16),
        [1, 2],
    ),
    form(
        "avx",
        "vmaskmovps ymmword ptr [r15 + 64], ymm3, ymm1",
        (4, 8),
        [2, 4],
    ),
    form(
        "avx2",
        "vpmaskmovq ymm1, ymm3, ymmword ptr [r15]",
        (8, 4),
        [3, 4],
    ),
    form(
        "avx2",
        "vpgatherdd ymm1, dword ptr [r15 + ymm2 * 4], ymm3",
        (4, 8),
        [3, 8],
    ),
    form(
        "avx512f",
        "vpcompressd zmmword ptr [r15]{k3}, zmm1",
        (4, 16),
        [2, 8],
    ),
    form(
        "avx512f",
        "vexpandpd zmm1{k3}{z}, zmmword ptr [r15]",
        (8, 8),
        [3, 8],
    ),
    form(
        "avx512f",
        "vpgatherdd zmm1{k3}, dword ptr [r15 + zmm20 * 4]",
        (4, 16),
        [3, 16],
    ),
    form(
        "avx512f",
        "vpscatterdq qword ptr [r15 + ymm2 * 8]{k3}, zmm1",
        (8, 8),
        [3, 8],
    ),
    form(
        "avx512bw",
        "vmovdqu8 zmmword ptr [r15]{k3}, zmm1",
        (1, 64),
        [1, 8],
    ),
    form(
        "avx512_vbmi2",
        "vpcompressb zmmword ptr [r15]{k3}, zmm1",
        (1, 64),
        [1, 8],
    ),
];

/// A program that runs an instruction with the mask whose number is that of its arguments.
fn program(form: &Form) -> String {
    let (size, count) = form.elements;
    let vectors = match form.extension {
        "sse2" => "movdqu xmm3, [rbx]",
        "avx" | "avx2" => "vzeroall; vmovdqu ymm3, [rbx]",
        // The upper parts are in their initial state, and have been something else before.
        _ => {
            "vpternlogd zmm6, zmm6, zmm6, 255; vzeroall; vpxord zmm20, zmm20, zmm20; kmovw k3, [rbx + 64]"
        }
    };
    let vectors = match form.extension {
        "avx512bw" | "avx512_vbmi2" => vectors.replace("kmovw", "kmovq"),
        _ => vectors.to_owned(),
    };
    let mut text = format!(
        ".intel_syntax noprefix\n.globl _start\n_start:\nlea r15, [rip + arena]\nmov rbx, [rsp]\ndec rbx\n\
         imul rbx, rbx, 72\nlea rax, [rip + masks]\nadd rbx, rax\nmov r12d, {TIMES}\n1: {vectors}; {}\n\
         dec r12d\njnz 1b\nmov eax, 60\nxor edi, edi\nsyscall\n.data\n.balign 64\narena: .space 4096\nmasks:\n",
        form.code
    );
    for selected in [0, 3, count] {
        let vector: Vec<String> = (0..64)
            .map(|n| if n / size < selected { "255" } else { "0" }.to_owned())
            .collect();
        let bits = u64::MAX.checked_shr(64 - selected as u32).unwrap_or(0);
        text += &format!(".byte {}\n.quad {bits}\n", vector.join(", "));
    }
    text
}

#[test]
fn elements_are_counted_by_the_number_that_a_mask_selects() {
    let at_hand = processors::at_hand();
    for form in FORMS.iter().filter(|form| at_hand.contains(form.extension)) {
        let folder = tempfile::tempdir().expect("a folder");
        let code = program(form);
        let program = trial::assembled(folder.path(), &code, &["-nostdlib"]);
        let program = match program {
            Err(Failure::NoProgram(text)) => panic!("{code}\n{text}"),
            program => program.unwrap_or_default(),
        };
        for settings in ["", ",time_share_ppm=50000"] {
            let count = |arguments| trial::accesses(&program, arguments, folder.path(), settings);
            let [none, three, all] = [&[][..], &["3"], &["3", "all"]].map(count);
            let found = [three, all].map(|count| count.wrapping_sub(none));
            let expected = form.accesses.map(|count| count * TIMES);
            assert_eq!(found, expected, "{}, settings {settings:?}", form.code);
        }
    }
}
