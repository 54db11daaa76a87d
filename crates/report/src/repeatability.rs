//! Repeatability: whether threads do the same work in another run, as far as the profile shows, and what to do if not.

use numaloc_model::Profile;
use numaloc_model::conditions::{Repeatability, WorkSharing};
use numaloc_model::number;

/// One sentence for the reader; `None` if the profile shows nothing.
#[must_use]
pub fn sentence(profile: &Profile) -> Option<String> {
    let conditions = &profile.meta().conditions;
    let found = conditions.repeatability(profile.threads().len());
    let measured = conditions.repeats.map(|repeats| {
        let correlation = repeats.correlation.map_or_else(
            || "cannot be correlated".to_owned(),
            |r| format!("correlate at {} at least", number::fixed(r, 2)),
        );
        let threads = match repeats.same_threads {
            true => "",
            false => ", and their threads are not the same",
        };
        format!("{} recordings {correlation}{threads}", repeats.runs)
    });
    let by = ways(profile);
    Some(match (found, measured) {
        (Repeatability::Assumed, None) if conditions.is_dealt() => {
            "loops are dealt by --deal node: each run gives a thread the same iterations first"
                .to_owned()
        }
        (Repeatability::Assumed, None) => return None,
        (Repeatability::Assumed, Some(_)) => format!(
            "{} recordings have the same threads; these communicate too little for their matrices to be compared",
            conditions.repeats.map_or(0, |repeats| repeats.runs)
        ),
        (Repeatability::Measured, measured) => {
            let also = match by.is_empty() {
                true => String::new(),
                false => format!(", although work is handed out while it runs ({by})"),
            };
            format!("repeatable: {}{also}", measured.unwrap_or_default())
        }
        (Repeatability::Dynamic, _) => format!(
            "work is handed to threads while the program runs ({by}): another run may give a thread other work, so that a \
             thread plan will not hold; `numaloc record --repeat 3` measures it"
        ),
        (Repeatability::Differs, measured) => {
            let by = match by.is_empty() {
                true => String::new(),
                false => format!(" (work is handed out while it runs: {by})"),
            };
            format!(
                "not repeatable: {}{by}: a thread plan will not hold",
                measured.unwrap_or_default()
            )
        }
    })
}

/// What to do if a thread plan will not hold.
#[must_use]
pub fn advice(profile: &Profile) -> Option<String> {
    let conditions = &profile.meta().conditions;
    if conditions.repeatability(profile.threads().len()).holds() {
        return None;
    }
    let has = |wanted: WorkSharing| conditions.open().any(|(kind, _)| *kind == wanted);
    let fix = if has(WorkSharing::DynamicLoop) {
        "give the loops schedule(static), record and plan again; or "
    } else if has(WorkSharing::RuntimeLoop) {
        "set OMP_SCHEDULE=static, record and plan again; or "
    } else {
        ""
    };
    let fix = match conditions.could_be_dealt() {
        true => format!(
            "deal the loops to the same threads in each run (numaloc record --deal node), and plan from that; or {fix}"
        ),
        false => fix.to_owned(),
    };
    Some(format!(
        "{fix}place pages so that it does not matter which thread uses them: numaloc plan --pages interleave"
    ))
}

/// The kinds of dynamic work distribution that were observed, each with one function.
fn ways(profile: &Profile) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut last = None;
    for (kind, by) in profile.meta().conditions.open() {
        if last != Some(*kind) {
            shown.push(format!("{}: {by}", kind.words()));
        }
        last = Some(*kind);
    }
    shown.join("; ")
}
