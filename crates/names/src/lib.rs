//! Names of functions as people read them, from their symbols: as in the source, without arguments, return types and
//! long lists of template arguments. The recorder and `run` use the same, as plans name threads by their routines.

use std::borrow::Cow;

use cpp_demangle::{DemangleOptions, Symbol};

/// Beginning of the mangled names of `std::thread::_State_impl<...>`.
const STATE: &str = "_ZNSt6thread11_State_impl";
/// Longest list of template arguments that is shown, in bytes.
const MOST_ARGUMENTS: usize = 12;

/// The name of a function as in the source. It is only mangled if it begins as mangled names do and is not known to be
/// C's: `f` is C's function of that name, although it would be a mangled `float`.
#[must_use]
pub fn readable(name: &str, is_c: bool) -> String {
    let is_mangled = ["_Z", "__Z", "_R", "__R"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    if is_c || !is_mangled {
        return name.to_owned();
    }
    let rust = || Some(format!("{:#}", rustc_demangle::try_demangle(name).ok()?));
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

/// What a thread runs, by the name of its start routine: of the function by which a C++ `std::thread` calls something
/// without a name of its own, the type of that.
#[must_use]
pub fn routine(name: &str) -> String {
    let options = DemangleOptions::new().no_params().no_return_type();
    let long = || Symbol::new(name).ok()?.demangle(&options).ok();
    let of_state = || {
        let long = name.starts_with(STATE).then(long).flatten()?;
        let (_, types) = long.split_once("std::tuple<")?;
        let mut depth = 0usize;
        let end = types.bytes().position(|byte| {
            match byte {
                b'<' | b'(' | b'{' => depth += 1,
                b'>' | b')' | b'}' if depth > 0 => depth -= 1,
                b',' | b'>' if depth == 0 => return true,
                _ => {}
            }
            false
        })?;
        Some(without_arguments(&without_parameters(&types[..end])).into_owned())
    };
    of_state().unwrap_or_else(|| readable(name, false))
}

/// `main::{lambda#1}` for `main::{lambda(int, int)#1}`.
fn without_parameters(name: &str) -> String {
    let parts = name.split_once("{lambda(").and_then(|(before, rest)| {
        let (_, after) = rest.split_once(")#")?;
        Some(format!("{before}{{lambda#{}", without_parameters(after)))
    });
    parts.unwrap_or_else(|| name.to_owned())
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
#[must_use]
pub fn constructs_template(function: &str) -> bool {
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
            assert_eq!(readable(short, false), short);
        }
        assert_eq!(readable("_Z1fv", true), "_Z1fv");
        assert_eq!(readable("_RNvC4demo4main", false), "demo::main");
        let hashed = "_ZN4demo4main17h0123456789abcdefE";
        assert_eq!(readable(hashed, false), "demo::main");
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
            assert_eq!(readable(long, false), short);
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
    fn threads_of_the_cpp_library_are_named_by_what_they_call() {
        for (name, routine_name) in [
            (
                "_ZNSt6thread11_State_implINS_8_InvokerISt5tupleIJ3JobiiEEEEE6_M_runEv",
                "Job",
            ),
            (
                "_ZNSt6thread11_State_implINS_8_InvokerISt5tupleIJZ4mainEUlmmE_iiEEEEE6_M_runEv",
                "main::{lambda#1}",
            ),
            ("_Z6workeri", "worker"),
            ("worker", "worker"),
        ] {
            assert_eq!(routine(name), routine_name);
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
