//! What people read of a characterisation: text for the terminal, a self-contained HTML page, SVG
//! figures, Markdown.
//!
//! Pure: the time, the host and the terminal's abilities are inputs, so the same profile gives the
//! same bytes. Figures are drawn here, by hand, once, as SVG; the HTML page only adds what needs a
//! reader's hand (hover, zoom, choice of phase and order).
//!
//! | module | holds |
//! |---|---|
//! | [`metrics`] | every metric with name, value, unit, range and meaning: the one list all outputs share |
//! | [`number`] | numbers and sizes as people write them |
//! | [`text`] | the terminal page of `numaloc show` |
//! | [`heatmap`] | a matrix in characters |

#![forbid(unsafe_code)]

pub mod heatmap;
pub mod metrics;
pub mod number;
pub mod text;
