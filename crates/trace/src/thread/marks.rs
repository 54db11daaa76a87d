//! Records that a thread passed a mark.

use numaloc_journal::Record;
use numaloc_model::MarkKind;
use numaloc_model::marks::{MOST_PLACES, is_recorded};

use super::ThreadTracer;
use crate::places::Passed;

impl ThreadTracer {
    /// Counts that this thread passes the place of that kind and name, and writes the pass if it is one of those that
    /// are recorded. `function` is the address of the region's function; 0 if the name says it all.
    pub fn pass(&mut self, kind: MarkKind, name: &str, function: u64) {
        let (place, occurrence) = match self.engine.places.pass(kind, name, function) {
            Passed::First(place) => {
                // Written at once, because the first pass of another thread may be written before this one's.
                self.engine.write(&Record::MarkPlace {
                    place,
                    kind: MarkKind::ALL.iter().position(|&of| of == kind).unwrap_or(0) as u8,
                    name: name.to_owned(),
                    function,
                });
                (place, 1)
            }
            Passed::Again(place, occurrence) => (place, occurrence),
            Passed::Crowded => {
                return self.engine.write(&Record::Note(format!(
                    "more than {MOST_PLACES} places with marks: the others are not recorded"
                )));
            }
            Passed::Uncounted => return,
        };
        if !is_recorded(occurrence) {
            return;
        }
        self.flush_pending();
        let (thread, time) = (self.number(), self.time());
        self.record(&Record::Mark {
            thread,
            place,
            occurrence,
            time,
        });
    }
}
