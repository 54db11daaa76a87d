//! Values of options of `record`, parsed for clap.

use numaloc_model::Layer;

/// `5%` or `0.05` as millionths, for clap.
pub fn share(given: &str) -> Result<u32, String> {
    let (number, unit) = match given.trim().strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (given.trim(), 1.0),
    };
    match number.parse::<f64>().map(|number| number / unit) {
        Ok(share) if (0.0001..=1.0).contains(&share) => Ok((share * 1e6).round() as u32),
        _ => Err("expected a share from 0.01% to 100%, for example 5% or 0.05".to_owned()),
    }
}

/// A layer that can be observed in memory accesses, for clap.
pub fn memory_layer(given: &str) -> Result<Layer, String> {
    match crate::commands::layer(given)? {
        layer @ (Layer::WriteRead | Layer::SharedLine | Layer::LastTwo) => Ok(layer),
        other => Err(format!(
            "{} cannot be observed in memory accesses; expected write_read, shared_line or last_two",
            other.name()
        )),
    }
}
