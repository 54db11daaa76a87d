//! Presents a characterisation: text for the terminal, a self-contained HTML page, SVG figures, Markdown.
//!
//! The crate is pure except for the fonts of [`png`]: time, host and the terminal's abilities are inputs, so the same
//! profile gives the same bytes. Figures are drawn once, as SVG; the HTML page only adds interaction (hover, zoom,
//! choice of phase and order).
//!
//! | module | holds |
//! |---|---|
//! | [`metrics`] | every metric with name, value, unit, range and meaning: the one list all outputs share |
//! | [`answer`] | the answer in five lines |
//! | [`better`] | which of two runs is better, and which problems came and went |
//! | [`next`] | commands that follow from the verdict |
//! | [`repeatability`] | whether threads do the same work in another run, and what to do if not |
//! | [`runs`] | several runs compared |
//! | [`simulation`] | simulated runs, read from the output of `simulate` |
//! | [`text`] | the terminal page of `numaloc show` |
//! | [`heatmap`] | a matrix in characters |
//! | [`figures`] | SVG drawings |
//! | [`gate`] | limits on how much worse locality may get |
//! | [`markdown`] | verdict and metrics for pasting |
//! | [`plan`] | a plan as the report shows it |
//! | [`png`] | the drawings as PNG files |
//! | [`html`] | the self-contained page |

#![forbid(unsafe_code)]

pub mod answer;
pub mod better;
mod cut;
pub mod figures;
pub mod gate;
pub mod heatmap;
pub mod html;
pub mod json;
pub mod markdown;
pub mod metrics;
pub mod mpi;
pub mod next;
pub mod plan;
pub mod png;
pub mod repeatability;
pub mod runs;
pub mod simulation;
pub mod text;
pub mod window;

use numaloc_model::number;
