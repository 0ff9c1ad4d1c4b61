//! The answer of `ff_get_traffic`: packets and bytes received and sent, and losses.

use std::collections::HashMap;

use slipstack_attach::inquiry;
use slipstack_attach::net::Inquiry;
use slipstack_config::Settings;

use crate::dispatcher::{self, Traffic};
use crate::life;

/// Counters of an engine that each of the six is the sum of.
const SUMS: [&[&str]; 6] = [
    &["rx_frames"],
    &["rx_bytes"],
    &["tx_frames"],
    &["tx_bytes"],
    &["device_rx_overrun"],
    &["engine_tx_full", "device_tx_dropped"],
];

/// Returns the traffic of this process's engines, or that of the instances which it may use, which
/// is asked for; zero before there is a stack, and where it may not be asked for.
pub fn now() -> Traffic {
    match life::options().filter(|options| !options.instances.is_empty()) {
        Some(options) => of_instances(options),
        None => dispatcher::traffic(),
    }
}

fn of_instances(options: &Settings) -> Traffic {
    let mut sum = Traffic::default();
    for answer in inquiry::inquire(options, &Inquiry::Counters).unwrap_or_default() {
        let is_ours = |name: &String| options.instances.contains(name);
        if !answer.engine.instance.as_ref().is_some_and(is_ours) {
            continue;
        }
        for (total, count) in sum.iter_mut().zip(parsed(&answer.text)) {
            *total += count;
        }
    }
    sum
}

/// Reads lines that are each a pair of name and value in JSON.
fn parsed(text: &str) -> Traffic {
    let rows = text.lines().map(serde_json::from_str);
    let counters: HashMap<String, u64> = rows.filter_map(Result::ok).collect();
    SUMS.map(|names| names.iter().filter_map(|name| counters.get(*name)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_six_numbers_summed_from_an_engines_counters() {
        let text = "[\"rx_frames\",3]\n[\"device_tx_dropped\",4]\nnonsense\n\
                    [\"engine_tx_full\",5]\n[\"tx_bytes\",6]\n[\"other\",7]\n";
        assert_eq!(parsed(text), [3, 0, 0, 6, 0, 9]);
        assert_eq!(parsed(""), Traffic::default());
    }
}
