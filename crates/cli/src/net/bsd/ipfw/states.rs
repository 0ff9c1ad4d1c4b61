//! The flows that rules with a state have let in, as `ipfw -d` lists them.

use std::fmt::Write as _;

use slipstack_channel::control::net::{FilterRule, FilterStateRow, Inquiry};

use super::firewall::Firewall;
use super::names;
use crate::failure::Failure;

impl Firewall<'_> {
    /// Returns the known flows of all engines together.
    pub fn states_text(&self, rules: &[FilterRule]) -> Result<String, Failure> {
        let mut rows: Vec<FilterStateRow> = Vec::new();
        for answer in self.inquire(&Inquiry::FilterStates)? {
            let lines = answer.text.lines();
            rows.extend(lines.filter_map(|line| serde_json::from_str::<FilterStateRow>(line).ok()));
        }
        rows.retain(|row| row.left_ms > 0 || self.style.has_expired);
        let number = |row: &FilterStateRow| {
            let rule = rules.iter().find(|rule| rule.id == row.rule);
            rule.map(|rule| rule.number)
        };
        let mut lines: Vec<(u32, String)> = rows
            .iter()
            .filter_map(|row| Some((number(row)?, self.state_text(row))))
            .collect();
        lines.sort();
        let mut text = format!(
            "## Dynamic rules ({} {}):\n",
            lines.len(),
            lines.len() * 128
        );
        for (number, line) in lines {
            let _ = writeln!(text, "{number:05}{line}");
        }
        Ok(text)
    }

    /// ` 10 840 (19s) STATE tcp 10.0.0.1 4000 <-> 10.0.0.2 22 :default`
    fn state_text(&self, row: &FilterStateRow) -> String {
        let mut text = String::new();
        if self.style.has_counts {
            let _ = write!(text, " {:>10} {:>14}", row.packets, row.bytes);
        }
        let kind = if row.is_limited { "LIMIT" } else { "STATE" };
        let protocol = names::protocol_text(row.protocol);
        let (src, dst) = (row.src, row.dst);
        let _ = write!(
            text,
            " ({}s) {kind} {protocol} {} {} <-> {} {} :default",
            row.left_ms.div_ceil(1000),
            src.ip(),
            src.port(),
            dst.ip(),
            dst.port()
        );
        text
    }
}
