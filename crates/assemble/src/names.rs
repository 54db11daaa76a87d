//! Names of functions as people read them: as in the source, without arguments, return types and long lists of template
//! arguments.

use std::borrow::Cow;

use cpp_demangle::{DemangleOptions, Symbol};
use gimli::DwLang;

/// Longest list of template arguments that is shown, in bytes.
const MOST_ARGUMENTS: usize = 12;

/// The name of a function as in the source. It is only mangled if the language mangles names and it begins as they do:
/// `f` is C's function of that name, although it would be a mangled `float`.
pub(crate) fn readable(name: &str, language: Option<DwLang>) -> String {
    let is_c = matches!(
        language,
        Some(
            gimli::DW_LANG_C
                | gimli::DW_LANG_C89
                | gimli::DW_LANG_C99
                | gimli::DW_LANG_C11
                | gimli::DW_LANG_C17
        )
    );
    let is_mangled = ["_Z", "__Z", "_R", "__R"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    if is_c || !is_mangled {
        return name.to_owned();
    }
    let rust = || addr2line::demangle(name, gimli::DW_LANG_Rust);
    rust()
        .or_else(|| cpp(name))
        .unwrap_or_else(|| name.to_owned())
}

/// The name of a C++ function.
fn cpp(name: &str) -> Option<String> {
    // What the compiler makes of a function has its name and a suffix, as in C: `f._omp_fn.0`.
    let (mangled, suffix) = name.split_at(name.find('.').unwrap_or(name.len()));
    let options = DemangleOptions::new().no_params().no_return_type();
    let name = Symbol::new(mangled).ok()?.demangle(&options).ok()?;
    Some(format!("{}{suffix}", without_arguments(&name)))
}

/// A name with `<...>` for long lists of template arguments.
fn without_arguments(name: &str) -> Cow<'_, str> {
    let Some((start, end)) = first_list(name, 0) else {
        return Cow::Borrowed(name);
    };
    let list = match end - start > MOST_ARGUMENTS {
        true => "<...>",
        false => &name[start..end],
    };
    let rest = without_arguments(&name[end..]);
    Cow::Owned(format!("{}{list}{rest}", &name[..start]))
}

/// The first list of template arguments from a position on: where it begins, and where it ends.
fn first_list(name: &str, from: usize) -> Option<(usize, usize)> {
    let start = from + name[from..].find('<')?;
    // The signs of `operator<<` begin no list; a list after them comes after a space.
    if name[..start].ends_with("operator") {
        let signs = name[start..]
            .bytes()
            .take_while(|byte| b"<=>".contains(byte));
        return first_list(name, start + signs.count());
    }
    let mut depth = 0usize;
    for (at, byte) in name.bytes().enumerate().skip(start) {
        match byte {
            b'<' => depth += 1,
            // `->` ends no list.
            b'>' if name.as_bytes()[at - 1] != b'-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((start, at + 1));
        }
    }
    None
}

/// Whether it is a constructor of a class template, such as a program's own container: the line that constructs one
/// says more than the line within it.
pub(crate) fn constructs_template(function: &str) -> bool {
    let Some((class, method)) = function.rsplit_once("::") else {
        return false;
    };
    let is_template = class.ends_with('>');
    let class = class.split('<').next().unwrap_or(class);
    is_template && class.rsplit("::").next() == Some(method)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mangled_names_are_demangled() {
        for short in [
            "f",
            "v",
            "w",
            "main",
            "_Zone",
            "_Roman",
            "is",
            "main._omp_fn.0",
        ] {
            for language in [None, Some(gimli::DW_LANG_C_plus_plus)] {
                assert_eq!(readable(short, language), short);
            }
        }
        assert_eq!(readable("_Z1fv", Some(gimli::DW_LANG_C11)), "_Z1fv");
        assert_eq!(readable("_RNvC4demo4main", None), "demo::main");
        let hashed = "_ZN4demo4main17h0123456789abcdefE";
        assert_eq!(readable(hashed, None), "demo::main");
    }

    #[test]
    fn arguments_return_types_and_clones_are_left_out() {
        for (long, short) in [
            ("_ZN4grid4makeEi", "grid::make"),
            ("_ZN4grid4makeEiPFdiE", "grid::make"),
            ("_ZN12_GLOBAL__N_14workEv", "(anonymous namespace)::work"),
            ("_ZNK4taskclEi", "task::operator()"),
            ("_Z8AllocateIdEPT_m", "Allocate<double>"),
            (
                "_Z10InitParentRK8CSRGraphIiiLb1EE._omp_fn.0",
                "InitParent._omp_fn.0",
            ),
        ] {
            let languages = [None, Some(gimli::DW_LANG_C_plus_plus_17)];
            assert_eq!(languages.map(|of| readable(long, of)), [short, short]);
        }
    }

    #[test]
    fn long_lists_of_template_arguments_are_left_out() {
        for (long, short) in [
            ("pvector<long>::pvector", "pvector<long>::pvector"),
            (
                "Generator<int, int, std::mersenne_twister_engine<unsigned long, 32> >::Make<int>",
                "Generator<...>::Make<int>",
            ),
            (
                "operator<< <a_very_long_name_of_a_type, another>",
                "operator<< <...>",
            ),
            ("operator<=><int>", "operator<=><int>"),
            ("a<b", "a<b"),
        ] {
            assert_eq!(without_arguments(long), short);
        }
    }

    #[test]
    fn constructors_of_templates_are_known() {
        for (function, is_one) in [
            ("pvector<int>::pvector", true),
            ("own::pvector<...>::pvector", true),
            ("pvector<int>::resize", false),
            ("Table::Table", false),
            ("main", false),
        ] {
            assert_eq!(constructs_template(function), is_one, "{function}");
        }
    }
}
