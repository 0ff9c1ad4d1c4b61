//! Reports of a run, for people and for programs.

use std::fmt::Write;

use serde_json::{Map, Value, json};
use slipstack_sim::link::LinkCounters;

use crate::observer::TcpCounters;

pub struct Direction {
    pub to: String,
    pub link: LinkCounters,
    pub tcp: TcpCounters,
    pub super_frames: u64,
    pub send_refused: u64,
    pub other_vlan: u64,
    pub late_p50_ns: u64,
    pub late_p99_ns: u64,
    pub late_p999_ns: u64,
    pub late_max_ns: u64,
}

pub struct Report {
    pub seconds: f64,
    /// To the left, to the right.
    pub directions: [Direction; 2],
}

impl Direction {
    /// Everything that was counted, with its name.
    fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.link.rows().chain([
            ("tcp_segments", self.tcp.segments),
            ("tcp_bytes", self.tcp.bytes),
            (
                "tcp_retransmitted_segments",
                self.tcp.retransmitted_segments,
            ),
            ("tcp_retransmitted_bytes", self.tcp.retransmitted_bytes),
            ("tcp_duplicate_sacks", self.tcp.duplicate_sacks),
            ("dropped_super_frame", self.super_frames),
            ("dropped_send_refused", self.send_refused),
            ("dropped_other_vlan", self.other_vlan),
            ("late_p50_ns", self.late_p50_ns),
            ("late_p99_ns", self.late_p99_ns),
            ("late_p999_ns", self.late_p999_ns),
            ("late_max_ns", self.late_max_ns),
        ])
    }

    fn rate(&self, seconds: f64) -> f64 {
        self.link.delivered_bytes as f64 * 8e-6 / seconds.max(1e-9)
    }
}

pub fn json(report: &Report) -> Value {
    let directions = report.directions.iter().map(|direction| {
        let rows = direction.rows();
        let mut fields: Map<_, _> = rows
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        fields.insert("to".into(), direction.to.clone().into());
        Value::Object(fields)
    });
    json!({ "seconds": report.seconds, "directions": directions.collect::<Vec<_>>() })
}

pub fn text(report: &Report) -> String {
    let mut text = format!("{:.3} s\n", report.seconds);
    for direction in &report.directions {
        let rate = direction.rate(report.seconds);
        let _ = writeln!(text, "to {}: {rate:.3} Mbit/s", direction.to);
        for (name, value) in direction.rows().filter(|(_, value)| *value != 0) {
            let _ = writeln!(text, "  {name:22} {value}");
        }
        if direction.super_frames != 0 {
            text.push_str(
                "  frames longer than the MTU came in: switch offloads off at the sender\n",
            );
        }
    }
    text
}
