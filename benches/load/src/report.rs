//! The report of a measurement.

use hdrhistogram::Histogram;
use serde::Serialize;

#[derive(Serialize)]
pub struct Report {
    pub requests: u64,
    pub errors: u64,
    pub seconds: f64,
    pub rate: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// Requests that were due but found no free connection (open loop only).
    pub late: u64,
}

impl Report {
    pub fn new(latency_ns: &Histogram<u64>, errors: u64, late: u64, seconds: f64) -> Self {
        let at = |quantile: f64| latency_ns.value_at_quantile(quantile) as f64 / 1000.0;
        let requests = latency_ns.len();
        Report {
            requests,
            errors,
            seconds,
            rate: requests as f64 / seconds,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: latency_ns.max() as f64 / 1000.0,
            late,
        }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_string())
    }
}
