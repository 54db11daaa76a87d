//! How often pages would have to move (data mapping Fig. 4).

use numaloc_analysis::migrations::Migrations;

use super::{Axes, Drawing, Paint};
use crate::number;

/// Share of the pages by the number of moves that keep them with their main user.
#[must_use]
pub fn migrations(found: &Migrations, paint: Paint) -> String {
    let (width, height) = (530.0, 250.0);
    let mut drawing = Drawing::new(width, height, paint);
    let all: u64 = found.pages.iter().sum();
    let share = |pages: u64| pages as f64 / all.max(1) as f64;
    let most = found.pages.iter().copied().map(share).fold(0.0, f64::max);
    let axes = Axes::draw(
        &mut drawing,
        (48.0, 14.0, width - 60.0, 186.0),
        most,
        number::whole_percent,
    );
    let step = axes.width / found.pages.len().max(1) as f64;
    for (moves, &pages) in found.pages.iter().enumerate() {
        let x = axes.left + moves as f64 * step;
        let last = moves + 1 == found.pages.len();
        let label = if last {
            format!("{moves}+")
        } else {
            moves.to_string()
        };
        if pages > 0 {
            let y = axes.y(share(pages)).min(axes.bottom() - 1.5);
            let tip = format!("{label} moves: {} pages", number::count(pages as f64));
            let colour = if moves == 0 {
                paint.other
            } else {
                paint.accent
            };
            drawing.rounded(
                x + step * 0.15,
                y,
                step * 0.7,
                axes.bottom() - y,
                1.5,
                colour,
                "none",
                &tip,
            );
        }
        drawing.label(x + step / 2.0, axes.bottom() + 17.0, &label);
    }
    let middle = axes.left + axes.width / 2.0;
    drawing.label(middle, height - 10.0, "moves per page in the run");
    drawing.finish("pages by number of migrations")
}
