//! Reads and writes `plan.json`. Format: `docs/formats/plan.md`.
//!
//! Increase [`VERSION`] when a field changes its meaning; readers ignore unknown fields.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use numaloc_model::plan::{
    ObjectKey, PagePlan, PhasePlan, Plan, Predicted, PredictedMove, Provenance, ThreadPlan, Trigger,
};
use numaloc_model::profile::ObjectKind;
use numaloc_model::roles::RolesPlan;
use numaloc_model::{LogicalNode, LogicalPu, MarkKind, MarkPlace, OsNode, OsPu};
use serde::{Deserialize, Serialize};

use crate::error::FormatError;
use crate::profile::known_variables;

mod roles;

use roles::RolesFile;

/// Newest version of the format: that of plans by role, which an older reader would take for plans of nothing.
pub const VERSION: u64 = 2;
/// Version of plans for single threads and pages, which need no later reader.
const WITHOUT_ROLES: u64 = 1;
const FORMAT: &str = "numaloc-plan";
const KIND: &str = "numaloc plan";
/// Larger than any valid plan: refused before it is read into memory.
const MAX_BYTES: u64 = 4 << 30;
/// Number of bytes from which a JSON object is recognised.
const HEAD_BYTES: u64 = 4096;

#[derive(Serialize, Deserialize)]
struct PlanFile {
    format: String,
    version: u64,
    machine: MachineFile,
    provenance: ProvenanceFile,
    predicted: PredictedFile,
    page_size_bytes: u64,
    threads: Vec<ThreadFile>,
    #[serde(default)]
    objects: Vec<ObjectFile>,
    #[serde(default)]
    pages: Vec<PagesFile>,
    #[serde(default)]
    schedule: Vec<PhaseFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    roles: Option<RolesFile>,
}

#[derive(Serialize, Deserialize)]
struct MachineFile {
    name: String,
    fingerprint: String,
}

#[derive(Serialize, Deserialize)]
struct ProvenanceFile {
    thread_policy: String,
    page_policy: String,
    parameters: Vec<(String, String)>,
    command: Vec<String>,
    tool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    environment: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct PredictedFile {
    cost: f64,
    remote: f64,
    total: f64,
    node_imbalance: f64,
    remote_accesses: u64,
    accesses: u64,
}

#[derive(Serialize, Deserialize)]
struct ThreadFile {
    path: String,
    pu: u32,
    os_pu: u32,
}

#[derive(Serialize, Deserialize)]
struct ObjectFile {
    kind: String,
    name: String,
    creator: Option<String>,
    size_bytes: u64,
    order: u32,
}

#[derive(Serialize, Deserialize)]
struct PagesFile {
    object: u32,
    first_page: u64,
    pages: u64,
    node: u32,
    os_node: u32,
}

#[derive(Serialize, Deserialize)]
struct PhaseFile {
    at: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<MarkFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gain_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost_s: Option<f64>,
    #[serde(default)]
    threads: Vec<ThreadFile>,
    #[serde(default)]
    pages: Vec<PagesFile>,
}

#[derive(Serialize, Deserialize)]
struct MarkFile {
    kind: String,
    name: String,
    occurrence: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every: Option<u64>,
}

/// The plan as JSON text, one line per thread and page range, ending in a newline.
#[must_use]
pub fn to_json(plan: &Plan) -> String {
    let mut text = serde_json::to_string_pretty(&file_of(plan)).expect("plain data serialises");
    text.push('\n');
    text
}

/// Writes a plan; the file appears complete or not at all.
///
/// # Errors
/// [`FormatError::Output`], for example if the file exists and `force` is not set.
pub fn write(plan: &Plan, path: &Path, force: bool) -> Result<(), FormatError> {
    let output = numaloc_files::FileOutput::check(path, force)?;
    Ok(output.write(to_json(plan).as_bytes())?)
}

/// Reads a plan.
///
/// # Errors
/// [`FormatError`] with line and column, or with the invalid field.
pub fn read(path: &Path) -> Result<Plan, FormatError> {
    let io = |error| FormatError::io("read", path, error);
    let about = fs::metadata(path).map_err(io)?;
    let wrong = |found: String| FormatError::WrongKind {
        path: path.to_owned(),
        found,
        expected: KIND,
    };
    if about.is_dir() {
        return Err(wrong("a folder, not a file".to_owned()));
    }
    if about.len() > MAX_BYTES {
        return Err(wrong(format!("{} bytes long", about.len())));
    }
    let bytes = read_text(path).map_err(io)?;
    if bytes.len() as u64 > MAX_BYTES || !looks_like_json(&bytes) {
        return Err(wrong("it is no JSON object".to_owned()));
    }
    // The kind is checked before the content, because the user may pass any JSON by mistake.
    #[derive(Deserialize)]
    struct Head {
        format: Option<String>,
        version: Option<u64>,
    }
    let parse_error = |error: serde_json::Error| {
        FormatError::corrupt(
            path,
            format!("line {}, column {}", error.line(), error.column()),
            error.to_string(),
            "the fields of docs/formats/plan.md",
        )
    };
    let head: Head = serde_json::from_slice(&bytes).map_err(parse_error)?;
    if head.format.as_deref() != Some(FORMAT) {
        return Err(wrong(format!(
            "its format is {}",
            head.format
                .map_or("not given".to_owned(), |format| format!("{format:?}"))
        )));
    }
    if head.version.unwrap_or(0) > VERSION {
        return Err(FormatError::Newer {
            path: path.to_owned(),
            found: head.version.unwrap_or(0),
            supported: VERSION,
        });
    }
    let file: PlanFile = serde_json::from_slice(&bytes).map_err(parse_error)?;
    plan_of(file, path)
}

/// The file's bytes, at most [`MAX_BYTES`] + 1. Of a file that does not begin like a JSON object (a device, an
/// archive), only the first bytes.
fn read_text(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = numaloc_files::input::open(path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(HEAD_BYTES).read_to_end(&mut bytes)?;
    if looks_like_json(&bytes) {
        file.take(MAX_BYTES + 1 - HEAD_BYTES)
            .read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn looks_like_json(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first() == Some(&b'{')
}

fn file_of(plan: &Plan) -> PlanFile {
    let p = &plan.provenance;
    PlanFile {
        format: FORMAT.to_owned(),
        version: match plan.roles.is_empty() {
            true => WITHOUT_ROLES,
            false => VERSION,
        },
        machine: MachineFile {
            name: plan.machine.clone(),
            fingerprint: plan.fingerprint.clone(),
        },
        provenance: ProvenanceFile {
            thread_policy: p.thread_policy.clone(),
            page_policy: p.page_policy.clone(),
            parameters: p.parameters.clone(),
            command: p.command.clone(),
            tool: p.tool.clone(),
            environment: p
                .environment
                .as_ref()
                .map(|known| known.iter().cloned().collect()),
            left_out: p.left_out.clone(),
        },
        predicted: PredictedFile {
            cost: plan.predicted.cost,
            remote: plan.predicted.remote,
            total: plan.predicted.total,
            node_imbalance: plan.predicted.node_imbalance,
            remote_accesses: plan.predicted.remote_accesses,
            accesses: plan.predicted.accesses,
        },
        page_size_bytes: plan.page_size,
        threads: plan.threads.iter().map(thread_file).collect(),
        objects: plan
            .objects
            .iter()
            .map(|object| ObjectFile {
                kind: object.kind.name().to_owned(),
                name: object.name.clone(),
                creator: object.creator.clone(),
                size_bytes: object.size,
                order: object.order,
            })
            .collect(),
        pages: plan.pages.iter().map(pages_file).collect(),
        schedule: plan
            .schedule
            .iter()
            .map(|phase| PhaseFile {
                at: phase.at,
                mark: phase.trigger.as_ref().map(|trigger| MarkFile {
                    kind: trigger.place.kind.name().to_owned(),
                    name: trigger.place.name.clone(),
                    occurrence: trigger.occurrence,
                    every: trigger.every,
                }),
                gain_s: phase.predicted.map(|predicted| predicted.gain_s),
                cost_s: phase.predicted.map(|predicted| predicted.cost_s),
                threads: phase.threads.iter().map(thread_file).collect(),
                pages: phase.pages.iter().map(pages_file).collect(),
            })
            .collect(),
        roles: (!plan.roles.is_empty()).then(|| RolesFile::of(&plan.roles)),
    }
}

fn thread_file(thread: &ThreadPlan) -> ThreadFile {
    ThreadFile {
        path: thread.path.clone(),
        pu: thread.pu.0,
        os_pu: thread.os_pu.0,
    }
}

fn pages_file(pages: &PagePlan) -> PagesFile {
    PagesFile {
        object: pages.object,
        first_page: pages.first_page,
        pages: pages.pages,
        node: pages.node.0,
        os_node: pages.os_node.0,
    }
}

fn pages_plan(rows: Vec<PagesFile>) -> Vec<PagePlan> {
    let plan = |row: PagesFile| PagePlan {
        object: row.object,
        first_page: row.first_page,
        pages: row.pages,
        node: LogicalNode(row.node),
        os_node: OsNode(row.os_node),
    };
    rows.into_iter().map(plan).collect()
}

fn threads_plan(rows: Vec<ThreadFile>) -> Vec<ThreadPlan> {
    let plan = |row: ThreadFile| ThreadPlan {
        path: row.path,
        pu: LogicalPu(row.pu),
        os_pu: OsPu(row.os_pu),
    };
    rows.into_iter().map(plan).collect()
}

/// The trigger of move `at` of the schedule.
fn trigger(mark: MarkFile, at: usize, path: &Path) -> Result<Trigger, FormatError> {
    let kind = MarkKind::from_name(&mark.kind).ok_or_else(|| {
        FormatError::corrupt(
            path,
            format!("schedule[{at}].mark.kind"),
            format!("{:?}", mark.kind),
            "region, barrier, thread or user",
        )
    })?;
    Ok(Trigger {
        place: MarkPlace {
            kind,
            name: mark.name,
        },
        occurrence: mark.occurrence,
        every: mark.every,
    })
}

fn plan_of(file: PlanFile, path: &Path) -> Result<Plan, FormatError> {
    let objects: Vec<ObjectKey> = file
        .objects
        .into_iter()
        .enumerate()
        .map(|(at, object)| {
            let kind = ObjectKind::from_name(&object.kind).ok_or_else(|| {
                FormatError::corrupt(
                    path,
                    format!("objects[{at}].kind"),
                    format!("{:?}", object.kind),
                    "static, heap, mapping, stack or shared",
                )
            })?;
            Ok(ObjectKey {
                kind,
                name: object.name,
                creator: object.creator,
                size: object.size_bytes,
                order: object.order,
            })
        })
        .collect::<Result<_, FormatError>>()?;
    let schedule = file
        .schedule
        .into_iter()
        .enumerate()
        .map(|(at, phase)| {
            Ok(PhasePlan {
                at: phase.at,
                trigger: phase.mark.map(|mark| trigger(mark, at, path)).transpose()?,
                predicted: phase
                    .gain_s
                    .zip(phase.cost_s)
                    .map(|(gain_s, cost_s)| PredictedMove { gain_s, cost_s }),
                threads: threads_plan(phase.threads),
                pages: pages_plan(phase.pages),
            })
        })
        .collect::<Result<_, FormatError>>()?;
    let plan = Plan {
        machine: file.machine.name,
        fingerprint: file.machine.fingerprint,
        provenance: Provenance {
            thread_policy: file.provenance.thread_policy,
            page_policy: file.provenance.page_policy,
            parameters: file.provenance.parameters,
            command: file.provenance.command,
            tool: file.provenance.tool,
            environment: file.provenance.environment.map(known_variables),
            left_out: file.provenance.left_out,
        },
        predicted: Predicted {
            cost: file.predicted.cost,
            remote: file.predicted.remote,
            total: file.predicted.total,
            node_imbalance: file.predicted.node_imbalance,
            remote_accesses: file.predicted.remote_accesses,
            accesses: file.predicted.accesses,
        },
        page_size: file.page_size_bytes,
        threads: threads_plan(file.threads),
        objects,
        pages: pages_plan(file.pages),
        schedule,
        roles: match file.roles {
            Some(roles) => roles.plan(path)?,
            None => RolesPlan::default(),
        },
    };
    plan.check()
        .map_err(|flaw| FormatError::corrupt(path, flaw.place, flaw.found, flaw.expected))?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaloc_files::OutputError;

    fn plan() -> Plan {
        Plan {
            machine: "numa4x4".into(),
            fingerprint: "00aa".into(),
            provenance: Provenance {
                thread_policy: "deloc".into(),
                page_policy: "locality".into(),
                parameters: vec![("seed".into(), "1".into())],
                command: vec!["./app".into()],
                tool: "numaloc 0.1.0".into(),
                environment: Some(vec![("OMP_NUM_THREADS".into(), "2".into())]),
                left_out: vec!["0.1".into()],
            },
            predicted: Predicted {
                cost: 1.5,
                remote: 2.0,
                total: 4.0,
                node_imbalance: 1.0,
                remote_accesses: 3,
                accesses: 9,
            },
            page_size: 4096,
            threads: vec![ThreadPlan {
                path: "0".into(),
                pu: LogicalPu(3),
                os_pu: OsPu(5),
            }],
            objects: vec![ObjectKey {
                kind: ObjectKind::Mapping,
                name: "anonymous".into(),
                creator: Some("0".into()),
                size: 8192,
                order: 2,
            }],
            pages: vec![PagePlan {
                object: 0,
                first_page: 1,
                pages: 1,
                node: LogicalNode(2),
                os_node: OsNode(2),
            }],
            schedule: vec![PhasePlan {
                at: 0.5,
                trigger: Some(Trigger {
                    place: MarkPlace {
                        kind: MarkKind::Barrier,
                        name: "GOMP_barrier".into(),
                    },
                    occurrence: 100,
                    every: Some(20),
                }),
                predicted: Some(PredictedMove {
                    gain_s: 0.25,
                    cost_s: 0.0625,
                }),
                threads: vec![],
                pages: vec![],
            }],
            roles: RolesPlan::default(),
        }
    }

    #[test]
    fn plans_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        write(&plan(), &path, false).unwrap();
        assert_eq!(read(&path).unwrap(), plan());
        assert!(matches!(
            write(&plan(), &path, false),
            Err(FormatError::Output(OutputError::Exists { .. }))
        ));
    }

    #[test]
    fn numbers_are_read_to_the_last_bit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        for k in 1..=100 {
            let k = f64::from(k);
            let mut plan = plan();
            plan.predicted.cost = 1e9 / k;
            plan.predicted.node_imbalance = 1.0 + k / 37.0;
            plan.predicted.remote = k * 1e-7 / 3.0;
            write(&plan, &path, true).unwrap();
            assert_eq!(read(&path).unwrap(), plan);
        }
    }

    #[test]
    fn broken_plans_are_refused_with_their_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        let good = to_json(&plan());
        for (from, to, says) in [
            (
                "\"object\": 0",
                "\"object\": 7",
                "pages[0].object: found 7, expected a number below 1",
            ),
            ("\"mapping\"", "\"map\"", "objects[0].kind"),
            ("\"at\": 0.5", "\"at\": 5", "schedule[0].at"),
            ("\"version\": 1", "\"version\": 3", "format version 3"),
            ("numaloc-plan", "other", "is not a numaloc plan"),
            (
                "\"first_page\": 1",
                "\"first_page\": 18446744073709551615",
                "64-bit",
            ),
            ("\"threads\": [", "\"threads\": [[", "line "),
            (
                "\"os_node\": 2",
                "\"os_node\": 32768",
                "pages[0].os_node: found 32768, expected a number below 32768",
            ),
            (
                "\"page_size_bytes\": 4096",
                "\"page_size_bytes\": 1",
                "page_size_bytes: found 1",
            ),
            ("\"cost\": 1.5", "\"cost\": -1.5", "predicted.cost"),
            (
                "\"path\": \"0\"",
                "\"path\": \"\"",
                "threads[0].path: found \"\"",
            ),
        ] {
            fs::write(&path, good.replace(from, to)).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains('\n'), "{error}");
        }
        type Change = fn(&mut Plan);
        let twice: Change = |plan| plan.threads.push(plan.threads[0].clone());
        let overlap: Change = |plan| plan.pages.push(plan.pages[0].clone());
        let backwards: Change = |plan| {
            plan.schedule.insert(0, plan.schedule[0].clone());
            plan.schedule[0].at = 0.75;
        };
        let changes = [
            (
                twice,
                "threads[1].path: found \"0\" again, expected a path that threads[0] does not have",
            ),
            (overlap, "pages[1]: found page 1 of object 0"),
            (backwards, "schedule[1].at: found 0.5"),
        ];
        for (change, says) in changes {
            let mut plan = plan();
            change(&mut plan);
            fs::write(&path, to_json(&plan)).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains('\n'), "{error}");
        }
        // Endless and no plan: refused after its first bytes.
        let error = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("no JSON object"), "{error}");
        for cut in (0..good.len() - 2).step_by(13) {
            fs::write(&path, &good[..cut]).unwrap();
            assert!(read(&path).is_err());
        }
    }
}
