//! The machine as nested boxes, with the threads that run on every PU.

use numaloc_topology::{ObjectKind, Topology};

use super::{Anchor, Drawing, Paint, SERIES};

/// What runs on a PU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupied {
    /// Thread and the colour group it belongs to.
    pub threads: Vec<(usize, usize)>,
}

const PAD: f64 = 8.0;
const TITLE: f64 = 18.0;
const GAP: f64 = 6.0;

enum Shape {
    /// A PU, by logical index.
    Pu(usize),
    /// A titled box around others, in rows of `columns`.
    Box {
        title: Option<String>,
        tight: bool,
        children: Vec<Sized>,
    },
}

struct Sized {
    shape: Shape,
    width: f64,
    height: f64,
    columns: usize,
}

/// Draws the machine, at most `width` pixels wide; `pus` is indexed by logical PU.
#[must_use]
pub fn machine(topology: &Topology, pus: &[Occupied], width: f64, paint: Paint) -> String {
    let count = topology.pus().len().max(1);
    // Big enough for a thread number where possible, small enough to see a whole machine.
    let cell = if count <= 64 {
        26.0
    } else if count <= 256 {
        20.0
    } else {
        12.0
    };
    let root = layout(topology, 0, cell, width);
    let scale = (width / root.width).min(1.0);
    let mut canvas = Canvas {
        drawing: Drawing::new(root.width * scale, root.height * scale, paint),
        scale,
        pus,
        paint,
    };
    canvas.draw(&root, 0.0, 0.0);
    canvas
        .drawing
        .finish(&format!("threads on {}", topology.name()))
}

fn title(topology: &Topology, at: u32) -> Option<String> {
    let object = &topology.objects()[at as usize];
    let nodes: Vec<String> = (0..topology.nodes().len())
        .filter(|&n| topology.nodes()[n].object == at)
        .map(|n| format!("node {n}"))
        .collect();
    let branches = object.children.len() > 1;
    let own = match object.kind {
        ObjectKind::Package => Some("package".to_owned()),
        ObjectKind::Host => Some("host".to_owned()),
        ObjectKind::Switch => Some("switch".to_owned()),
        ObjectKind::Die if branches => Some("die".to_owned()),
        ObjectKind::Cache(level) if level >= 3 && branches => Some(match object.cache_bytes {
            Some(bytes) if bytes > 0 => format!("L{level} {}", crate::number::page_size(bytes)),
            _ => format!("L{level}"),
        }),
        _ => None,
    };
    if nodes.is_empty() {
        return own;
    }
    // A machine with one node hangs its memory on the root.
    Some(match own {
        Some(own) => format!("{} · {own}", nodes.join(", ")),
        None => nodes.join(", "),
    })
}

fn layout(topology: &Topology, at: u32, cell: f64, room: f64) -> Sized {
    let object = &topology.objects()[at as usize];
    if object.kind == ObjectKind::Pu || (object.children.is_empty() && !object.pus.is_empty()) {
        return Sized {
            shape: Shape::Pu(object.pus.start as usize),
            width: cell,
            height: cell * 0.85,
            columns: 1,
        };
    }
    let title = title(topology, at);
    let mut children: Vec<Sized> = object
        .children
        .iter()
        .filter(|&&child| !topology.objects()[child as usize].pus.is_empty())
        .map(|&child| layout(topology, child, cell, room))
        .collect();
    if title.is_none() && children.len() == 1 {
        return children.remove(0);
    }
    let small = children.iter().all(|child| child.width < cell * 2.5);
    let tight = small && title.is_none();
    let (gap, pad) = if tight { (1.0, 1.5) } else { (GAP, PAD) };
    let widest = children.iter().map(|c| c.width).fold(0.0, f64::max);
    let tallest = children.iter().map(|c| c.height).fold(0.0, f64::max);
    let n = children.len().max(1);
    let columns = if tight {
        n
    } else if small {
        // Cores: a block about twice as wide as high, full rows where the number allows.
        let wide = ((n as f64 * 2.0).sqrt().ceil() as usize).clamp(1, n);
        (wide..=(wide + 2).min(n))
            .find(|columns| n.is_multiple_of(*columns))
            .unwrap_or(wide)
    } else {
        // Big boxes: as many as fit, in even rows.
        let fit = (((room - 2.0 * pad) + gap) / (widest + gap))
            .floor()
            .max(1.0) as usize;
        let rows = n.div_ceil(fit.min(n));
        n.div_ceil(rows)
    };
    let rows = n.div_ceil(columns);
    let head = if title.is_some() { TITLE } else { 0.0 };
    Sized {
        width: 2.0 * pad + columns as f64 * (widest + gap) - gap,
        height: 2.0 * pad + head + rows as f64 * (tallest + gap) - gap,
        columns,
        shape: Shape::Box {
            title,
            tight,
            children,
        },
    }
}

/// What all parts of a drawing share.
struct Canvas<'a> {
    drawing: Drawing,
    /// Pixels per unit of the layout.
    scale: f64,
    pus: &'a [Occupied],
    paint: Paint,
}

impl Canvas<'_> {
    /// Draws `sized` with its upper left corner at `x`, `y`.
    fn draw(&mut self, sized: &Sized, x: f64, y: f64) {
        match &sized.shape {
            Shape::Pu(at) => self.pu(*at, sized, x, y),
            Shape::Box {
                title,
                tight,
                children,
            } => {
                let (gap, pad) = if *tight { (1.0, 1.5) } else { (GAP, PAD) };
                if !*tight {
                    self.frame(sized, x, y, title.is_some());
                }
                let mut top = y + pad;
                if let Some(title) = title {
                    self.title(title, x + pad, top);
                    top += TITLE;
                }
                let widest = children.iter().map(|c| c.width).fold(0.0, f64::max);
                let tallest = children.iter().map(|c| c.height).fold(0.0, f64::max);
                for (at, child) in children.iter().enumerate() {
                    let (row, col) = (at / sized.columns, at % sized.columns);
                    let cx = x + pad + col as f64 * (widest + gap);
                    let cy = top + row as f64 * (tallest + gap);
                    self.draw(child, cx, cy);
                }
            }
        }
    }

    /// A PU in the colour of its first thread, with that thread's number where it is readable.
    fn pu(&mut self, at: usize, sized: &Sized, x: f64, y: f64) {
        let (scale, paint) = (self.scale, self.paint);
        let s = |v: f64| v * scale;
        let threads = self.pus.get(at).map_or(&[][..], |o| &o.threads[..]);
        let (fill, stroke) = match threads.first() {
            Some((_, group)) => (SERIES[group % SERIES.len()], "none"),
            None => (paint.box_, paint.line),
        };
        let names: Vec<String> = threads.iter().map(|(t, _)| t.to_string()).collect();
        let tip = if threads.is_empty() {
            format!("PU {at}: free")
        } else {
            format!("PU {at}: thread {}", names.join(", "))
        };
        self.drawing.rounded(
            s(x),
            s(y),
            s(sized.width),
            s(sized.height),
            3.0,
            fill,
            stroke,
            &tip,
        );
        if let (Some((thread, _)), true) = (threads.first(), s(sized.width) >= 16.0) {
            let more = if threads.len() > 1 { "+" } else { "" };
            let label = format!("{thread}{more}");
            // Long numbers are written smaller: a character is about 0.64 of its size wide.
            let fits = s(sized.width) * 0.94 / (0.64 * label.len() as f64);
            let size = (s(sized.width) * 0.44).min(11.5).min(fits);
            let (cx, cy) = (
                s(x + sized.width / 2.0),
                s(y + sized.height / 2.0) + size * 0.36,
            );
            self.drawing
                .text(cx, cy, Anchor::Middle, "#ffffff", size, &label);
        }
    }

    /// The frame of a box; one without a title is invisible.
    fn frame(&mut self, sized: &Sized, x: f64, y: f64, is_titled: bool) {
        let scale = self.scale;
        let s = |v: f64| v * scale;
        let (fill, stroke) = if is_titled {
            (self.paint.box_, self.paint.line)
        } else {
            ("none", "none")
        };
        self.drawing.rounded(
            s(x) + 0.5,
            s(y) + 0.5,
            s(sized.width) - 1.0,
            s(sized.height) - 1.0,
            6.0,
            fill,
            stroke,
            "",
        );
    }

    /// A box's title, below `y`.
    fn title(&mut self, title: &str, x: f64, y: f64) {
        let size = (11.5 * self.scale).max(8.0);
        self.drawing.text(
            x * self.scale,
            y * self.scale + size,
            Anchor::Start,
            self.paint.muted,
            size,
            title,
        );
    }
}
