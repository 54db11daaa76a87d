use proptest::prelude::*;

use super::*;

fn decoded(text: &OsStr) -> Result<Config, SettingError> {
    let mut config = Config::default();
    config.decode(text).map(|()| config)
}

fn path() -> impl Strategy<Value = PathBuf> {
    // Any bytes that a path may have.
    prop::collection::vec(1u8..=255, 0..40).prop_map(|bytes| OsString::from_vec(bytes).into())
}

fn filter() -> impl Strategy<Value = Filter> {
    let cache = || (any::<u64>(), 1..=u64::MAX).prop_map(|(bytes, ways)| CacheSize { bytes, ways });
    let windows = (1..=Windows::MOST_PPM, 0..=Windows::MOST_WARM_LINES).prop_map(
        |(share_ppm, warm_lines)| Windows {
            share_ppm,
            warm_lines,
        },
    );
    (cache(), cache(), prop::option::of(windows)).prop_map(|(l1, l2, windows)| Filter {
        l1,
        l2,
        windows,
        marks_loads: false,
    })
}

fn place() -> impl Strategy<Value = Place> {
    any::<(u32, u32, u64)>().prop_map(|(pid, descriptor, nonce)| Place {
        pid,
        descriptor,
        nonce,
    })
}

fn station() -> impl Strategy<Value = Station> {
    let inherited =
        || any::<(u32, u64)>().prop_map(|(descriptor, inode)| Inherited { descriptor, inode });
    (inherited(), inherited()).prop_map(|(folder, registrar)| Station { folder, registrar })
}

prop_compose! {
    fn config()(
        (folder, program, plugin) in (path(), path(), path()),
        (frontend, thread, host) in (".*", "[^\0]*", ".*"),
        line_shift in 3u32..=12,
        flags in any::<(bool, bool, bool)>(),
        (slice, slices) in (1..=u64::MAX, 1..=u64::MAX),
        (page_bytes, memory, clock, origin_ns, since_ns) in any::<(u64, u64, u64, u64, u64)>(),
        layers in prop::collection::vec(prop::sample::select(&Layer::ALL[..]), 0..4),
        (time_share_ppm, line_share_ppm) in (1u32..=1_000_000, 1u32..=1_000_000),
        (image, created_threads, created_processes) in any::<(u32, u32, u32)>(),
        trace in prop::option::of(filter()),
        cross_process in prop::option::of(place()),
        station in prop::option::of(station()),
        (group, huge_pages) in (
            prop::sample::select(&Grouping::NAMES[..]), prop::sample::select(&HugePages::NAMES[..]),
        ),
    ) -> Config {
        let (virtual_clock, consecutive, floor) = flags;
        Config {
            folder, station, frontend, program, plugin, line_shift, virtual_clock, slice, slices, page_bytes, layers,
            time_share_ppm, line_share_ppm, consecutive, memory, trace, path: thread, image, created_threads,
            created_processes, clock, origin_ns, since_ns, host, cross_process, group: group.0, floor,
            huge_pages: huge_pages.0,
        }
    }
}

proptest! {
    #[test]
    fn settings_come_back_as_they_were_encoded(config in config()) {
        let text = config.encode();
        prop_assert!(text.as_bytes().iter().all(|byte| (b' '..=b'~').contains(byte)));
        prop_assert_eq!(decoded(&text), Ok(config));
    }

    #[test]
    fn no_text_makes_decoding_panic(text in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = decoded(OsStr::from_bytes(&text));
    }
}

#[test]
fn defaults_need_no_text() {
    assert_eq!(Config::default().encode(), "");
    assert_eq!(decoded(OsStr::new("")), Ok(Config::default()));
}

#[test]
fn values_are_escaped_where_qemu_or_the_codec_would_split_them() {
    let config = Config {
        plugin: "/a,b/p.so".into(),
        path: "r1".to_owned(),
        group: Grouping::Check,
        ..Config::default()
    };
    assert_eq!(
        config.plugin_option(),
        "/a,,b/p.so,plugin=/a%2Cb/p.so,path=r1,group=check"
    );
}

#[test]
fn an_unknown_or_malformed_setting_is_one_line() {
    let message = |text: &str| decoded(OsStr::new(text)).unwrap_err().to_string();
    assert_eq!(
        message("slice=5,pace=3"),
        "unknown setting pace of the recording: numaloc and its frontend may be of different versions"
    );
    for (text, expected) in [
        (
            "slices=0",
            "setting slices of the recording is \"0\", expected a number, at least 1",
        ),
        (
            "line_shift=2",
            "setting line_shift of the recording is \"2\", expected a number from 3 to 12",
        ),
        (
            "image",
            "setting image of the recording is \"\", expected a number of at most 32 bits",
        ),
        (
            "floor=yes",
            "setting floor of the recording is \"yes\", expected 0 or 1",
        ),
        (
            "layers=a%0Ab",
            "setting layers of the recording is \"a\\nb\", expected layers joined by +",
        ),
        (
            "group=all",
            "setting group of the recording is \"all\", expected off, on or check",
        ),
    ] {
        assert_eq!(message(text), expected);
        assert!(!message(text).contains('\n'));
    }
    for text in [
        "time_share_ppm=0",
        "trace=1+2+3",
        "trace=1+0+1+1+0+0",
        "trace=1+1+1+1+9000000+0",
        "cross_process=1+2",
        "memory=-1",
    ] {
        assert!(
            matches!(decoded(OsStr::new(text)), Err(SettingError::Value { .. })),
            "{text}"
        );
    }
}

#[test]
fn the_table_lists_every_setting_with_its_default() {
    let table = Config::table();
    let mut names: Vec<_> = table.iter().map(|setting| setting.name).collect();
    for setting in &table {
        let text = format!("{}={}", setting.name, setting.default);
        assert_eq!(decoded(OsStr::new(&text)), Ok(Config::default()), "{text}");
        assert!(!setting.about.is_empty() && !setting.kind.is_empty());
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), table.len());
}
