//! Simulated runs as the report shows them: the output of `numaloc simulate --json`, read and checked.

use serde_json::Value;

/// Largest number of rows that are read.
const MOST_ROWS: usize = 4096;
/// Largest number of intervals, controllers or links that are read.
const MOST_VALUES: usize = 65_536;

/// Why a text is not the output of `simulate --json`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// Not JSON.
    #[error("not JSON: {0}")]
    Json(String),
    /// A member is missing, or is of another kind.
    #[error("{place} is {found}, expected {expected}")]
    Member {
        /// Path of the member.
        place: String,
        /// What is there.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
    /// There are no rows.
    #[error("it has no rows")]
    Empty,
}

/// A quantity over the time of a run: sums of intervals of equal width from time 0.
#[derive(Clone, Debug, PartialEq)]
pub struct OverTime {
    /// Nanoseconds of an interval.
    pub interval_ns: f64,
    /// Sum of each interval.
    pub sums: Vec<f64>,
}

/// A memory controller of a simulated run.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// Picoseconds that it served requests.
    pub busy: OverTime,
    /// Picoseconds that requests waited.
    pub wait: OverTime,
}

/// A directed link of a simulated run.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Logical node it leaves.
    pub from: u64,
    /// Logical node it enters.
    pub to: u64,
    /// Bytes carried.
    pub bytes: OverTime,
}

/// A simulated run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Machine, thread policy and page policy.
    pub machine: String,
    /// See [`Row::machine`].
    pub threads: String,
    /// See [`Row::machine`].
    pub pages: String,
    /// Duration in nanoseconds.
    pub time_ns: f64,
    /// Share of DRAM lines of another node, 0..=100; `None` without traffic.
    pub remote_percent: Option<f64>,
    /// Mean wait at controllers in nanoseconds.
    pub queue_wait_ns: f64,
    /// Busy time of the busiest controller in percent.
    pub busiest_percent: f64,
    /// Bytes on all links.
    pub link_bytes: f64,
    /// By logical node.
    pub controllers: Vec<Controller>,
    /// By link.
    pub links: Vec<Link>,
}

impl Row {
    /// Policies, and the machine if `with_machine`.
    #[must_use]
    pub fn name(&self, with_machine: bool) -> String {
        let machine = match with_machine {
            true => format!("{}: ", self.machine),
            false => String::new(),
        };
        format!("{machine}{} with {}", self.threads, self.pages)
    }
}

/// A place in the document, for messages.
struct At<'a> {
    value: &'a Value,
    place: String,
}

impl<'a> At<'a> {
    fn member(&self, name: &str) -> At<'a> {
        At {
            value: &self.value[name],
            place: format!("{}.{name}", self.place),
        }
    }

    fn wrong(&self, expected: &'static str) -> SimulationError {
        let found = match self.value {
            Value::Null => "missing".to_owned(),
            Value::Array(values) => format!("a list of {}", values.len()),
            Value::Object(_) => "an object".to_owned(),
            other => other.to_string().chars().take(40).collect(),
        };
        SimulationError::Member {
            place: self.place.trim_start_matches('.').to_owned(),
            found,
            expected,
        }
    }

    fn text(&self) -> Result<String, SimulationError> {
        let text = self.value.as_str().filter(|text| text.len() <= 4096);
        Ok(text.ok_or_else(|| self.wrong("a name"))?.to_owned())
    }

    fn number(&self) -> Result<f64, SimulationError> {
        let number = self.value.as_f64().filter(|number| *number >= 0.0);
        number.ok_or_else(|| self.wrong("a number of at least 0"))
    }

    fn list(&self, most: usize) -> Result<Vec<At<'a>>, SimulationError> {
        let list = self.value.as_array().filter(|list| list.len() <= most);
        let list = list.ok_or_else(|| self.wrong("a list"))?;
        let at = |(at, value)| At {
            value,
            place: format!("{}[{at}]", self.place),
        };
        Ok(list.iter().enumerate().map(at).collect())
    }

    fn over_time(&self) -> Result<OverTime, SimulationError> {
        let interval = self.member("interval_ns");
        let interval_ns = interval.number()?;
        if interval_ns <= 0.0 {
            return Err(interval.wrong("a number above 0"));
        }
        let sums = self.member("sums").list(MOST_VALUES)?;
        Ok(OverTime {
            interval_ns,
            sums: sums.iter().map(At::number).collect::<Result<_, _>>()?,
        })
    }

    fn row(&self) -> Result<Row, SimulationError> {
        let remote = self.member("remote_percent");
        let controller = |node: &At<'_>| {
            Ok(Controller {
                busy: node.member("busy_ps_over_time").over_time()?,
                wait: node.member("wait_ps_over_time").over_time()?,
            })
        };
        let link = |link: &At<'_>| {
            Ok(Link {
                from: link.member("from").number()? as u64,
                to: link.member("to").number()? as u64,
                bytes: link.member("bytes_over_time").over_time()?,
            })
        };
        let nodes = self.member("nodes").list(MOST_VALUES)?;
        let links = self.member("links").list(MOST_VALUES)?;
        Ok(Row {
            machine: self.member("machine").text()?,
            threads: self.member("threads").text()?,
            pages: self.member("pages").text()?,
            time_ns: self.member("time_ns").number()?,
            remote_percent: match remote.value {
                Value::Null => None,
                _ => Some(remote.number()?),
            },
            queue_wait_ns: self.member("mean_queue_wait_ns").number()?,
            busiest_percent: self.member("busiest_controller_percent").number()?,
            link_bytes: self.member("link_bytes").number()?,
            controllers: nodes.iter().map(controller).collect::<Result<_, _>>()?,
            links: links.iter().map(link).collect::<Result<_, _>>()?,
        })
    }
}

/// The rows of the output of `simulate --json`, by machine in its order, the fastest first.
///
/// # Errors
/// [`SimulationError`] if it is something else.
pub fn read(text: &str) -> Result<Vec<Row>, SimulationError> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| SimulationError::Json(error.to_string()))?;
    let whole = At {
        value: &value,
        place: String::new(),
    };
    let rows = whole.member("rows").list(MOST_ROWS)?;
    let rows: Vec<Row> = rows.iter().map(At::row).collect::<Result<_, _>>()?;
    if rows.is_empty() {
        return Err(SimulationError::Empty);
    }
    let mut machines: Vec<String> = Vec::new();
    for row in &rows {
        if !machines.contains(&row.machine) {
            machines.push(row.machine.clone());
        }
    }
    let mut sorted = rows;
    let machine = |row: &Row| machines.iter().position(|name| *name == row.machine);
    sorted.sort_by(|a, b| {
        let by_machine = machine(a).cmp(&machine(b));
        by_machine.then(a.time_ns.total_cmp(&b.time_ns))
    });
    Ok(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(machine: &str, threads: &str, time: f64) -> Value {
        let line = json!({"interval_ns": 2.0, "sums": [1000, 500]});
        json!({
            "machine": machine, "threads": threads, "pages": "locality", "time_ns": time, "remote_percent": null,
            "mean_queue_wait_ns": 1.5, "busiest_controller_percent": 50.0, "link_bytes": 96,
            "nodes": [{"busy_ps_over_time": line, "wait_ps_over_time": line}],
            "links": [{"from": 0, "to": 1, "bytes_over_time": line}],
        })
    }

    #[test]
    fn rows_are_sorted_by_machine_and_time() {
        let text =
            json!({"rows": [row("b", "slow", 9.0), row("a", "x", 1.0), row("b", "fast", 3.0)]});
        let rows = read(&text.to_string()).unwrap();
        let names: Vec<String> = rows.iter().map(|row| row.name(true)).collect();
        let expected = [
            "b: fast with locality",
            "b: slow with locality",
            "a: x with locality",
        ];
        assert_eq!(names, expected);
        assert_eq!(rows[0].controllers[0].busy.sums, [1000.0, 500.0]);
        assert_eq!((rows[0].links[0].to, rows[0].remote_percent), (1, None));
    }

    #[test]
    fn what_is_no_output_of_simulate_is_refused_with_its_place() {
        let message = |text: &str| read(text).unwrap_err().to_string();
        assert!(message("{").starts_with("not JSON: "));
        assert_eq!(message("{}"), "rows is missing, expected a list");
        assert_eq!(message("{\"rows\": []}"), "it has no rows");
        let mut wrong = row("a", "x", 1.0);
        wrong["links"][0]["bytes_over_time"]["sums"][1] = json!("many");
        let text = json!({"rows": [row("a", "y", 2.0), wrong]}).to_string();
        let expected =
            "rows[1].links[0].bytes_over_time.sums[1] is \"many\", expected a number of at least 0";
        assert_eq!(message(&text), expected);
        let whole = json!({"rows": [row("a", "y", 2.0)]}).to_string();
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut]).is_err(), "{cut}");
        }
    }
}
