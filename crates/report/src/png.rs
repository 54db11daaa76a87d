//! Figures as PNG: the same drawings as the SVG files, painted with resvg at twice their size.
//!
//! Text is painted with a font of this machine, so the bytes can differ between machines with
//! different fonts; on one machine they are reproducible. Labels come from profiles, but only as text:
//! the drawings refer to no file or address, and none is read.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

/// Pixels per CSS pixel of the drawing.
const SCALE: f32 = 2.0;
/// Families tried in this order, the same as in the drawings.
const FAMILIES: [&str; 4] = ["DejaVu Sans", "Noto Sans", "Liberation Sans", "Cantarell"];

/// Why a figure could not be painted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PngError {
    /// The machine has no font to write labels with.
    #[error(
        "cannot paint figures: found no font on this machine, expected one such as DejaVu Sans"
    )]
    NoFont,
    /// The painter refused the drawing.
    #[error("cannot paint figure {figure}: {reason}")]
    Refused {
        /// Name of the figure.
        figure: String,
        /// What was wrong.
        reason: String,
    },
}

/// Paints drawings. Loading the fonts is slow, so create one painter and reuse it.
pub struct Painter {
    options: Options<'static>,
}

impl Painter {
    /// A painter with this machine's fonts.
    ///
    /// # Errors
    /// [`PngError::NoFont`] where there are none.
    pub fn with_system_fonts() -> Result<Self, PngError> {
        let mut fonts = fontdb::Database::new();
        fonts.load_system_fonts();
        let named = |name: &&str| {
            fonts
                .faces()
                .any(|face| face.families.iter().any(|(family, _)| family == name))
        };
        let family = match FAMILIES.into_iter().find(|name| named(name)) {
            Some(name) => name.to_owned(),
            None => {
                let face = fonts.faces().next().ok_or(PngError::NoFont)?;
                face.families[0].0.clone()
            }
        };
        fonts.set_sans_serif_family(family.clone());
        Ok(Self {
            options: Options {
                font_family: family,
                fontdb: Arc::new(fonts),
                ..Options::default()
            },
        })
    }

    /// Bytes of a PNG file of the drawing `svg`, which error messages call `figure`.
    ///
    /// # Errors
    /// [`PngError::Refused`] if it is no drawing or too large.
    pub fn paint(&self, figure: &str, svg: &str) -> Result<Vec<u8>, PngError> {
        let refused = |reason: String| PngError::Refused {
            figure: figure.to_owned(),
            reason,
        };
        let tree =
            Tree::from_str(svg, &self.options).map_err(|error| refused(error.to_string()))?;
        let size = tree.size().to_int_size();
        let (width, height) = (
            (size.width() as f32 * SCALE) as u32,
            (size.height() as f32 * SCALE) as u32,
        );
        let mut pixels = Pixmap::new(width, height)
            .ok_or_else(|| refused(format!("{width} x {height} pixels are too many")))?;
        resvg::render(
            &tree,
            Transform::from_scale(SCALE, SCALE),
            &mut pixels.as_mut(),
        );
        pixels
            .encode_png()
            .map_err(|error| refused(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWING: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20" font-family="system-ui, sans-serif"><rect width="100%" height="100%" fill="#ffffff"/><rect x="0" y="0" width="10" height="20" fill="#ff0000"/>LABEL</svg>"##;

    #[test]
    fn shapes_and_labels_are_painted_at_twice_the_size() {
        let painter = Painter::with_system_fonts().unwrap();
        let painted = |label: &str| {
            let png = painter
                .paint("test", &DRAWING.replace("LABEL", label))
                .unwrap();
            Pixmap::decode_png(&png).unwrap()
        };
        let plain = painted("");
        assert_eq!((plain.width(), plain.height()), (80, 40));
        let at = |pixels: &Pixmap, x, y| {
            let p = pixels.pixel(x, y).unwrap();
            (p.red(), p.green(), p.blue())
        };
        assert_eq!(at(&plain, 5, 5), (255, 0, 0));
        assert_eq!(at(&plain, 50, 5), (255, 255, 255));
        let labelled = painted(r##"<text x="12" y="15" font-size="14" fill="#000000">M</text>"##);
        let dark = (20..70)
            .flat_map(|x| (0..40).map(move |y| (x, y)))
            .filter(|&(x, y)| at(&labelled, x, y).0 < 128)
            .count();
        assert!(dark > 30, "the label is missing: {dark} dark pixels");
    }

    #[test]
    fn what_is_no_drawing_is_refused_by_name() {
        let painter = Painter::with_system_fonts().unwrap();
        let error = painter.paint("matrix", "<svg").unwrap_err().to_string();
        assert!(error.starts_with("cannot paint figure matrix:"), "{error}");
    }
}
