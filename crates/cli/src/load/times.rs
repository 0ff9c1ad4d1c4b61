//! Response times as percentiles.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value};

/// Parts of the requests that took no longer, by name.
const SHARES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("max", 1.0),
];

fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// One line: `p50 12.3 p90 …`, in microseconds.
pub fn line(times: &Histogram<u64>) -> String {
    let parts =
        SHARES.map(|(name, share)| format!("{name} {:.1}", micros(times.value_at_quantile(share))));
    parts.join(" ")
}

/// The percentiles and the mean, in microseconds.
pub fn json(times: &Histogram<u64>) -> Map<String, Value> {
    let mut latency = Map::new();
    for (name, share) in SHARES {
        let value = micros(times.value_at_quantile(share));
        latency.insert(name.to_owned(), value.into());
    }
    latency.insert("mean".to_owned(), (times.mean() / 1000.0).into());
    latency
}

/// Rate for `count` events in `time`.
pub fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}
