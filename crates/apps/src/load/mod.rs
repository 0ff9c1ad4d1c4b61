//! Load generators.

pub mod bench;
pub mod dns;
mod plot;
pub mod queries;
pub mod stress;

pub use plot::{Line, lines, scatter};

/// Returns the value below which `share` of the sorted values are.
pub fn quantile(sorted: &[u64], share: f64) -> u64 {
    match sorted.len() {
        0 => 0,
        len => sorted[((len - 1) as f64 * share).round() as usize],
    }
}
