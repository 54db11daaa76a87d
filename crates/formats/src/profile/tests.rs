use super::schema::Field;
use super::*;
use numaloc_files::OutputError;
use numaloc_model::profile::{
    CellError, Clock, CommRow, Meta, ObjectKind, SharedLine, Slice, Thread, ThreadRole, Variable,
};
use numaloc_model::{Layer, PageNumber, SliceIdx, ThreadIdx};

/// A small profile with every column used, nulls included.
pub(crate) fn small() -> Profile {
    let thread = |n: u32| Thread {
        role: ThreadRole::from_label((n == 1).then(|| "runtime helper".to_owned())),
        pid: 10,
        tid: 10 + n,
        rank: (n == 2).then_some(7),
        start: 1,
        end: u64::MAX,
        accesses: 100,
        read_bytes: 800,
        write_bytes: 80,
        dram_bytes: (n == 0).then_some(64),
        ..Thread::new(format!("0.{n}"))
    };
    let mut pages = PageUsage::new(4096);
    for number in [3, 9] {
        pages.push(
            PageHead {
                number: PageNumber(number),
                object: (number == 9).then_some(ObjectIdx(0)),
                object_page: number,
                first_touch: Some(ThreadIdx(1)),
                first_touch_time: number * 10,
                policy: None,
            },
            vec![
                ThreadAccess {
                    thread: ThreadIdx(0),
                    reads: 5,
                    writes: 0,
                },
                ThreadAccess {
                    thread: ThreadIdx(1),
                    reads: 1,
                    writes: number,
                },
            ],
        );
    }
    let row = |slice, src, dst, layer| CommRow {
        slice: SliceIdx(slice),
        src: ThreadIdx(src),
        dst: ThreadIdx(dst),
        layer,
        events: 3,
        bytes: 24,
    };
    let mut tables = ProfileBuilder::new(
        Meta {
            command: vec!["./app".into(), "naïve \"arg\"".into()],
            complete: false,
            notes: vec!["cut short".into()],
            dram_source: Some("made up".to_owned()),
            conditions: numaloc_model::conditions::Conditions {
                environment: vec![("OMP_NUM_THREADS".to_owned(), "2".to_owned())],
                sharing: vec![(
                    numaloc_model::conditions::WorkSharing::DynamicLoop,
                    "GOMP_loop_dynamic_start".to_owned(),
                )],
                repeats: Some(numaloc_model::conditions::Repeats {
                    runs: 3,
                    correlation: Some(0.5),
                    same_threads: true,
                }),
            },
            window: Some(numaloc_model::profile::Window {
                of: "process 7".to_owned(),
                source: numaloc_model::profile::WindowSource::Scan,
                seconds: 1.5,
                processes: 2,
                resident: vec![(0, 4096)],
                segments: vec![numaloc_model::profile::Segment {
                    name: "[heap]".to_owned(),
                    is_shared: true,
                    processes: 2,
                    resident: vec![(0, 4096)],
                }],
            }),
            ..Meta::new("qemu", Clock::Virtual)
        },
        pages.page_size(),
    );
    tables.usage(&pages);
    tables.threads = (0..3).map(thread).collect();
    tables.slices = vec![Slice { start: 0, end: 50 }, Slice { start: 50, end: 90 }];
    tables.communication = vec![row(0, 0, 1, Layer::WriteRead), row(1, 2, 0, Layer::Message)];
    tables.page_slices = vec![PageSlice {
        slice: SliceIdx(1),
        page: PageNumber(9),
        thread: ThreadIdx(0),
        accesses: 5,
    }];
    tables.objects = vec![Object {
        kind: ObjectKind::Heap,
        name: "[heap]".into(),
        size: 1 << 20,
        order: 0,
        thread: Some(ThreadIdx(0)),
        base: 0x5555_0000_0000,
        variables: vec![
            Variable {
                name: "grid".into(),
                offset: 0,
                size: 64,
                source: Some("ring.c:41".into()),
            },
            Variable {
                name: "counter".into(),
                offset: 64,
                size: 8,
                source: None,
            },
        ],
    }];
    tables.cell_errors = vec![CellError {
        layer: Layer::WriteRead,
        src: ThreadIdx(0),
        dst: ThreadIdx(1),
        relative_error: 0.125,
    }];
    tables.shared_lines = vec![SharedLine {
        line: 77,
        object: Some(ObjectIdx(0)),
        object_offset: 64,
        events: 9,
        false_events: 4,
    }];
    let slow = SlowLoad {
        page: PageNumber(9),
        thread: ThreadIdx(1),
        loads: 1,
    };
    tables.slow_loads = Some(("made up".to_owned(), vec![slow]));
    tables.build().unwrap()
}

#[test]
fn profiles_are_read_back_and_written_deterministically() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a.numaloc"), dir.path().join("b.numaloc"));
    let profile = small();
    write(&profile, &a, false).unwrap();
    write(&profile, &b, false).unwrap();
    assert_eq!(read(&a).unwrap(), profile);
    assert!(
        read_parts(&a, Parts { page_slices: false })
            .unwrap()
            .page_slices()
            .is_empty()
    );
    for entry in fs::read_dir(&a).unwrap() {
        let name = entry.unwrap().file_name();
        assert_eq!(
            fs::read(a.join(&name)).unwrap(),
            fs::read(b.join(&name)).unwrap()
        );
    }
}

#[test]
fn an_existing_folder_is_kept_unless_it_is_a_profile_and_force_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.numaloc");
    write(&small(), &path, false).unwrap();
    assert!(matches!(
        write(&small(), &path, false),
        Err(FormatError::Output(OutputError::Exists { .. }))
    ));
    write(&small(), &path, true).unwrap();
    let other = dir.path().join("precious");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("data"), "x").unwrap();
    assert!(matches!(
        write(&small(), &other, true),
        Err(FormatError::Output(OutputError::Foreign { .. }))
    ));
    assert!(other.join("data").exists());
    // No other files are left next to the outputs.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn errors_for_other_folders_are_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for (path, says) in [
        (dir.path().join("missing"), "No such file"),
        (file, "a file, not a folder"),
        (empty, "holds no meta.json"),
    ] {
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains('\n'), "{error}");
    }
}

/// The files of every profile.
fn files() -> impl Iterator<Item = String> {
    ORDER.into_iter().map(file_of).chain([META.to_owned()])
}

/// Removes the checksums, as in a profile of an earlier release.
fn strip_checksums(profile: &Path) {
    let meta = profile.join(META);
    let mut fields: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&meta).unwrap()).unwrap();
    let fields = fields.as_object_mut().unwrap();
    assert!(fields.remove("files").is_some() && fields.remove("checksum").is_some());
    fs::write(&meta, serde_json::to_string_pretty(fields).unwrap()).unwrap();
}

#[test]
fn every_truncation_and_every_flipped_bit_is_refused_with_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.numaloc");
    write(&small(), &path, false).unwrap();
    for name in files() {
        let file = path.join(&name);
        let good = fs::read(&file).unwrap();
        for cut in (0..good.len()).step_by(97) {
            fs::write(&file, &good[..cut]).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(&name) && !error.contains('\n'), "{error}");
        }
        for at in (0..good.len()).step_by(13) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&file, &bad).unwrap();
            let error = read(&path)
                .expect_err(&format!("{name}, byte {at}"))
                .to_string();
            assert!(
                (error.contains(&name) || error.contains("a.numaloc")) && !error.contains('\n'),
                "{error}"
            );
        }
        fs::write(&file, &good).unwrap();
    }
    assert_eq!(read(&path).unwrap(), small());
}

#[test]
fn a_table_of_another_run_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a.numaloc"), dir.path().join("b.numaloc"));
    write(&small(), &a, false).unwrap();
    let mut other = small().into_builder();
    other.threads[0].accesses += 1;
    write(&other.build().unwrap(), &b, false).unwrap();
    fs::copy(b.join("threads.parquet"), a.join("threads.parquet")).unwrap();
    let error = read(&a).unwrap_err().to_string();
    assert!(error.contains("as listed in meta.json"), "{error}");
}

#[test]
fn a_profile_without_checksums_is_read_and_damage_in_it_never_panics() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.numaloc");
    write(&small(), &path, false).unwrap();
    strip_checksums(&path);
    assert_eq!(read(&path).unwrap(), small());
    std::panic::set_hook(Box::new(|_| {}));
    let mut refused = 0;
    for table in ORDER {
        let file = path.join(file_of(table));
        let good = fs::read(&file).unwrap();
        for at in (0..good.len()).step_by(11) {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            fs::write(&file, &bad).unwrap();
            refused += usize::from(read(&path).is_err());
        }
        fs::write(&file, &good).unwrap();
    }
    let _ = std::panic::take_hook();
    assert!(refused > 100, "{refused}");
}

#[test]
fn a_fifo_in_a_profile_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.numaloc");
    write(&small(), &path, false).unwrap();
    strip_checksums(&path);
    let file = path.join("pages.parquet");
    fs::remove_file(&file).unwrap();
    let (fifo, mode) = (rustix::fs::FileType::Fifo, 0o600.into());
    rustix::fs::mknodat(rustix::fs::CWD, &file, fifo, mode, 0).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("FIFO"), "{error}");
}

#[test]
fn counts_that_no_sum_can_hold_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.numaloc");
    write(&small(), &path, false).unwrap();
    strip_checksums(&path);
    let mut rows = small().communication().to_vec();
    rows[0].events = 1 << 63;
    COMMUNICATION.write(&Rows::All(&rows), &path).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("column events"), "{error}");
}

#[test]
fn ids_out_of_range_are_refused_with_row_and_column() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.numaloc");
    write(&small(), &path, false).unwrap();
    strip_checksums(&path);
    let mut rows = small().communication().to_vec();
    rows[1].dst = ThreadIdx(99);
    COMMUNICATION.write(&Rows::All(&rows), &path).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(
        error.contains("row 1, column dst: found 99, expected a number below 3"),
        "{error}"
    );
}

#[test]
fn impossible_errors_and_lines_are_refused_and_missing_tables_are_empty() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.numaloc");
    write(&small(), &path, true).unwrap();
    strip_checksums(&path);
    let mut errors = small().cell_errors().to_vec();
    errors[0].relative_error = f64::NAN;
    CELL_ERRORS.write(&Rows::All(&errors), &path).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(
        error.contains("row 0, column relative_error: found NaN"),
        "{error}"
    );
    write(&small(), &path, true).unwrap();
    strip_checksums(&path);
    let mut lines = small().shared_lines().to_vec();
    lines[0].false_events = 10;
    SHARED_LINES.write(&Rows::All(&lines), &path).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(
        error.contains("found 10, expected at most the row's 9 events"),
        "{error}"
    );
    for table in ["cell_errors", "shared_lines"] {
        fs::remove_file(path.join(format!("{table}.parquet"))).unwrap();
    }
    let read = read(&path).unwrap();
    assert!(read.cell_errors().is_empty() && read.shared_lines().is_empty());
}

#[test]
fn variables_stay_within_their_object_and_may_be_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.numaloc");
    write(&small(), &path, true).unwrap();
    strip_checksums(&path);
    let mut objects = small().objects().to_vec();
    objects[0].variables[1].offset = u64::MAX;
    write_variables(&objects, &path).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("row 1, column offset"), "{error}");
    fs::remove_file(path.join("variables.parquet")).unwrap();
    assert!(read(&path).unwrap().objects()[0].variables.is_empty());
}

#[test]
fn a_newer_version_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.numaloc");
    write(&small(), &path, false).unwrap();
    let meta = path.join("meta.json");
    let text = fs::read_to_string(&meta)
        .unwrap()
        .replace("\"version\": 2", "\"version\": 9");
    fs::write(&meta, text).unwrap();
    assert!(matches!(
        read(&path),
        Err(FormatError::Newer { found: 9, .. })
    ));
}

/// Asserts that each column of a table refuses the numbers that its unit excludes: rows that do not exist, sums beyond
/// the limit, and gaps between the numbers of rows.
fn assert_units<R>(schema: &schema::Schema<R>, profile: &Path) {
    let table = profile.join(schema.file());
    let good = fs::read(&table).unwrap();
    for column in schema.columns {
        let mut rows = schema.read(&table).unwrap();
        match (column.unit, &column.field) {
            (Unit::Row(_) | Unit::Page | Unit::Count(_), Field::U32(_, set)) => {
                set(&mut rows[0], u32::MAX);
            }
            (Unit::Row(_) | Unit::Page | Unit::Count(_), Field::U64(_, set)) => {
                set(&mut rows[0], u64::MAX);
            }
            (Unit::Row(_) | Unit::Page | Unit::Count(_), Field::MaybeU64(_, set)) => {
                set(&mut rows[0], Some(u64::MAX));
            }
            (Unit::Row(_) | Unit::Page | Unit::Count(_) | Unit::Own, _) => {
                assert!(matches!(column.field, Field::Own), "{}", column.name);
                continue;
            }
            (Unit::None | Unit::Time | Unit::Of(_), _) => continue,
        }
        schema.write(&Rows::All(&rows), profile).unwrap();
        let error = read(profile).unwrap_err().to_string();
        let place = format!("column {}: found", column.name);
        assert!(
            error.contains(&schema.file()) && error.contains(&place),
            "{place}: {error}"
        );
        fs::write(&table, &good).unwrap();
    }
    read(profile).unwrap();
}

#[test]
fn columns_refuse_numbers_that_their_declared_unit_excludes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.numaloc");
    write(&small(), &path, false).unwrap();
    strip_checksums(&path);
    assert_units(&THREADS, &path);
    assert_units(&SLICES, &path);
    assert_units(&COMMUNICATION, &path);
    assert_units(&OBJECTS, &path);
    assert_units(&VARIABLES, &path);
    assert_units(&PAGES, &path);
    assert_units(&PAGE_SLICES, &path);
    assert_units(&CELL_ERRORS, &path);
    assert_units(&SHARED_LINES, &path);
    assert_units(&SLOW_LOADS, &path);
}

#[test]
fn columns_of_words_document_every_word() {
    let column = |table: &str, column: &str| {
        let table = tables().into_iter().find(|info| info.name == table);
        let mut columns = table.unwrap().columns.into_iter();
        columns.rfind(|info| info.name == column).unwrap()
    };
    let layers = column("communication", "layer");
    for layer in Layer::ALL {
        assert!(layers.about.contains(&format!("`{}`", layer.name())));
    }
    let kinds = column("objects", "kind");
    for kind in ObjectKind::ALL {
        assert!(kinds.about.contains(&format!("`{}`", kind.name())));
    }
}

#[test]
fn tables_are_declared_in_the_order_in_which_they_are_written() {
    assert_eq!(
        tables().map(|info| info.name),
        ORDER.map(|table| table.name())
    );
}
