//! A machine as nested boxes of text, like the picture that lstopo draws.

use numaloc_model::LogicalPu;
use numaloc_model::number::{bytes, page_size, plural};
use numaloc_topology::{ObjectKind, Topology};

/// A box: lines of text, and boxes below them.
struct Shape {
    lines: Vec<String>,
    inner: Vec<Shape>,
}

/// PUs of one object that get a line each; more are shown as a range.
const PUS_IN_LINES: usize = 4;

/// The picture of a machine, at most `columns` wide if its parts allow it. Of a cluster the first host is drawn.
pub fn picture(machine: &Topology, columns: usize) -> String {
    let (root, head) = match machine.hosts() {
        [] => (0, String::new()),
        [(first, name), ..] => {
            let hosts = plural(machine.hosts().len(), "host");
            (*first, format!("{hosts}; the first, {name}:\n"))
        }
    };
    let numbers = numbers(machine);
    let lines = draw(&shape(machine, root, &numbers), columns);
    head + &lines.join("\n") + "\n"
}

/// Number of each object among those of its kind, in logical order.
fn numbers(machine: &Topology) -> Vec<usize> {
    let objects = machine.objects();
    let mut order: Vec<usize> = (0..objects.len()).collect();
    order.sort_by_key(|&at| (objects[at].kind, objects[at].pus.start, objects[at].depth));
    let mut numbers = vec![0; objects.len()];
    for pair in order.windows(2) {
        if objects[pair[0]].kind == objects[pair[1]].kind {
            numbers[pair[1]] = numbers[pair[0]] + 1;
        }
    }
    numbers
}

fn shape(machine: &Topology, at: u32, numbers: &[usize]) -> Shape {
    let object = &machine.objects()[at as usize];
    let number = numbers[at as usize];
    let size = object
        .cache_bytes
        .map_or_else(String::new, |size| format!(" {}", page_size(size)));
    let mut lines = vec![match object.kind {
        ObjectKind::Cache(level) => format!("L{level}{size}"),
        ObjectKind::Machine => machine.name().to_owned(),
        kind => format!("{kind:?} L#{number}"),
    }];
    for (index, node) in machine.nodes().iter().enumerate() {
        if node.object == at {
            let memory = bytes(node.memory_bytes as f64);
            lines.push(format!("node L#{index} P#{} {memory}", node.os.0));
        }
    }
    let child = |&at: &u32| &machine.objects()[at as usize];
    let is_pu = |at: &&u32| child(at).kind == ObjectKind::Pu;
    let pus: Vec<u32> = object.children.iter().filter(is_pu).copied().collect();
    if pus.len() <= PUS_IN_LINES {
        lines.extend(pus.iter().map(|pu| {
            let pu = child(pu).pus.start;
            let os = machine.pus()[LogicalPu(pu).index()].os.0;
            format!("PU L#{pu} P#{os}")
        }));
    } else {
        lines.push(format!(
            "PUs L#{} to L#{}",
            object.pus.start,
            object.pus.end - 1
        ));
    }
    let others = object.children.iter().filter(|child| !is_pu(child));
    let mut inner: Vec<Shape> = others.map(|&at| shape(machine, at, numbers)).collect();
    // Caches and cores that contain one object share its box.
    let narrow = matches!(object.kind, ObjectKind::Cache(_) | ObjectKind::Core);
    if narrow && inner.len() == 1 {
        let only = inner.remove(0);
        lines.extend(only.lines);
        inner = only.inner;
    }
    Shape { lines, inner }
}

/// The lines of a box, all of one width.
fn draw(shape: &Shape, columns: usize) -> Vec<String> {
    const FRAME: usize = 4;
    let room = columns.saturating_sub(FRAME);
    let mut content = shape.lines.clone();
    let drawn: Vec<Vec<String>> = shape.inner.iter().map(|inner| draw(inner, room)).collect();
    let mut row: Vec<&Vec<String>> = Vec::new();
    let mut used = 0;
    for lines in &drawn {
        let width = width(&lines[0]);
        if !row.is_empty() && used + 1 + width > room {
            content.extend(side_by_side(&row));
            row.clear();
            used = 0;
        }
        used += width + usize::from(!row.is_empty());
        row.push(lines);
    }
    content.extend(side_by_side(&row));
    let widest = content.iter().map(|line| width(line)).max().unwrap_or(0);
    let edge = "─".repeat(widest + 2);
    let mut out = vec![format!("┌{edge}┐")];
    for line in content {
        let pad = " ".repeat(widest - width(&line));
        out.push(format!("│ {line}{pad} │"));
    }
    out.push(format!("└{edge}┘"));
    out
}

fn width(line: &str) -> usize {
    line.chars().count()
}

/// Boxes next to each other, with blanks below the lower ones.
fn side_by_side(boxes: &[&Vec<String>]) -> Vec<String> {
    let height = boxes.iter().map(|lines| lines.len()).max().unwrap_or(0);
    let line = |at: usize| {
        let parts: Vec<String> = boxes
            .iter()
            .map(|lines| match lines.get(at) {
                Some(line) => line.clone(),
                None => " ".repeat(width(&lines[0])),
            })
            .collect();
        parts.join(" ")
    };
    (0..height).map(line).collect()
}

#[cfg(test)]
mod tests {
    use numaloc_topology::resolve;

    use super::*;

    #[test]
    fn boxes_are_nested_and_lines_end_at_one_column() {
        let machine = resolve("numa:2(memory=1GiB) l2:1(size=1MiB) core:2 pu:1").unwrap();
        let shown = picture(&machine, 100);
        let widths: Vec<usize> = shown.lines().map(width).collect();
        assert!(widths.iter().all(|w| *w == widths[0]), "{shown}");
        for part in [
            "node L#0 P#0 1.00 GiB",
            "node L#1 P#1",
            "L2 1 MiB",
            "Core L#3",
            "PU L#3 P#3",
        ] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
    }

    #[test]
    fn a_machine_is_drawn_within_the_columns_that_its_parts_allow() {
        let machine = resolve("epyc-7501").unwrap();
        let shown = picture(&machine, 80);
        assert!(shown.lines().all(|line| width(line) <= 80), "{shown}");
        assert_eq!(shown.matches("Core L#").count(), 64, "{shown}");
        assert_eq!(
            shown.matches("PU L#").count(),
            machine.pus().len(),
            "{shown}"
        );
    }
}
