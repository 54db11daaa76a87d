//! Quality against time: one point per tool and size, medians over the families and machines.

use std::path::Path;

use plotters::prelude::*;

use crate::summary::{Run, mean_ratio, median_ms, tools};

/// Writes `plot.svg`. A tool is omitted at a size where it lacks more than the dense cases, because a mean over
/// different cases would be misleading.
pub fn write(folder: &Path, runs: &[Run]) {
    let path = folder.join("plot.svg");
    draw(&path, runs).expect("the plot can be drawn");
}

fn draw(path: &Path, runs: &[Run]) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, (900, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Thread policies: cost over best known, time (one line a policy, N = 64, 256, 1024, 4096)", ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((0.001f64..20_000f64).log_scale(), (1.0f64..8.0f64).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("median time, ms")
        .y_desc("geometric mean of J over the least known")
        .y_labels(12)
        .x_label_formatter(&|x| format!("{x}"))
        .y_label_formatter(&|y| format!("{y:.2}"))
        .draw()?;
    for (number, tool) in tools(runs).into_iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        let mut points = Vec::new();
        for size in [64, 256, 1024, 4096] {
            let of = |name: &str| -> Vec<&Run> {
                let cases = runs.iter().filter(|run| run.case.tasks == size);
                cases.filter(|run| run.tool == name).collect()
            };
            let (all, of) = (of("numaloc"), of(tool));
            let dense = all.iter().filter(|run| run.case.family.is_dense()).count();
            if of.is_empty() || of.len() + dense < all.len() {
                continue;
            }
            let ms = median_ms(&of).expect("there are runs");
            points.push((ms.max(0.001), mean_ratio(&of)));
        }
        chart
            .draw_series(LineSeries::new(
                points.iter().copied(),
                colour.stroke_width(1),
            ))?
            .label(tool)
            .legend(move |(x, y)| Circle::new((x + 8, y), 4, colour.filled()));
        chart.draw_series(
            points
                .iter()
                .map(|&point| Circle::new(point, 4, colour.filled())),
        )?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .position(SeriesLabelPosition::UpperRight)
        .draw()?;
    root.present()?;
    Ok(())
}
