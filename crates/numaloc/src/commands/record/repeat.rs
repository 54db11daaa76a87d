//! `record --repeat`: checks whether another run gives the same work to the same threads.

use numaloc_analysis::compare::{correlation, matched_threads, page_correlation, restricted};
use numaloc_model::conditions::Repeats;
use numaloc_model::profile::Amount;
use numaloc_model::{CommMatrix, Layer, Profile};

use super::program::Program;
use super::{Args, OWN_FAILURE};
use crate::error::CliError;
use crate::ui::Ui;

/// Records the program again and stores in `first` how well the other recordings agree with it: the smallest
/// correlation of the matrices and of the threads' use of pages, and whether the threads were the same.
pub fn compare(
    args: &Args,
    first: &mut Profile,
    program: &Program,
    output: &numaloc_files::FolderOutput,
    ui: &Ui,
) -> Result<(), CliError> {
    let layer = args.layers.first().copied().unwrap_or(Layer::WriteRead);
    let mut repeats = Repeats {
        runs: 1,
        correlation: None,
        same_threads: true,
    };
    for run in 2..=args.repeat {
        ui.remark(format_args!("recording {run} of {}", args.repeat));
        let observed = args.observe(program, output, ui)?;
        let again = args.assemble(&observed.folder, ui)?.profile;
        let matched = matched_threads(first, &again);
        let (ours, theirs): (Vec<usize>, Vec<usize>) = matched.iter().copied().unzip();
        repeats.runs = run;
        repeats.same_threads &=
            matched.len() == first.threads().len() && matched.len() == again.threads().len();
        let matrices = matrix(first, layer, &ours)
            .and_then(|ours| Ok((ours, matrix(&again, layer, &theirs)?)))?;
        // Threads that steal work may exchange the same amounts in each run and yet work on other pages.
        let found = [
            correlation(&matrices.0, &matrices.1),
            page_correlation(first, &again, &matched),
        ];
        for found in found.into_iter().flatten() {
            let least = repeats.correlation.unwrap_or(1.0);
            repeats.correlation = Some(least.min(found));
        }
    }
    first.set_repeats(repeats);
    Ok(())
}

fn matrix(profile: &Profile, layer: Layer, threads: &[usize]) -> Result<CommMatrix, CliError> {
    let whole = profile.matrix(layer, Amount::of_layer(layer));
    let whole = whole.map_err(|error| CliError::tool(error).status(OWN_FAILURE))?;
    Ok(restricted(&whole, threads))
}
