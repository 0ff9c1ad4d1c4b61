//! Layouts of interfaces: lines as `ip` has them, one line (`-o`), a short line (`-br`).

use std::fmt::Write as _;

use slipstack_channel::control::net::{Interface, NetworkState};

use super::options::{Form, Options};
use crate::counters::Counted;

/// An interface with the lines that are shown of it.
pub(super) struct Shown<'a> {
    pub state: &'a NetworkState,
    pub it: &'a Interface,
    /// Lines of addresses; `None`: links are asked for.
    pub addresses: Option<&'a [String]>,
    pub counted: Option<&'a Counted>,
}

/// The text of an interface in the form that the options ask for.
pub(super) fn text(shown: &Shown<'_>, options: Options) -> String {
    match options.form {
        Form::Lines => in_lines(shown),
        Form::One => in_one(shown),
        Form::Brief => brief(shown),
    }
}

fn in_lines(shown: &Shown<'_>) -> String {
    let mut text = super::link::head(shown.state, shown.it);
    for line in shown.addresses.unwrap_or_default() {
        let _ = writeln!(text, "    {line}");
    }
    if let Some(counted) = shown.counted {
        text.push_str(&counts(counted));
    }
    text
}

/// As `ip -s` shows them; what the stack cannot tell apart is 0.
fn counts(counted: &Counted) -> String {
    let Counted {
        traffic,
        rx_errors,
        tx_errors,
    } = counted;
    let row = |cells: [&str; 6]| {
        let cells = cells.map(|cell| format!("{cell:>10} "));
        format!("    {}\n", cells.concat().trim_end())
    };
    let number = |n: u64| n.to_string();
    let received = [
        traffic.rx_bytes,
        traffic.rx_packets,
        *rx_errors,
        traffic.rx_dropped,
    ];
    let received = received.map(number);
    let sent = [
        traffic.tx_bytes,
        traffic.tx_packets,
        *tx_errors,
        traffic.tx_dropped,
    ];
    let sent = sent.map(number);
    let with = |cells: &[String; 4]| row([&cells[0], &cells[1], &cells[2], &cells[3], "0", "0"]);
    let head = |word, last: [&str; 2]| {
        let names = row(["bytes", "packets", "errors", "dropped", last[0], last[1]]);
        format!("    {word}:{}", names.trim_start_matches("    "))
    };
    head("RX", ["missed", "mcast"])
        + &with(&received)
        + &head("TX", ["carrier", "collsns"])
        + &with(&sent)
}

fn in_one(shown: &Shown<'_>) -> String {
    let it = shown.it;
    let Some(addresses) = shown.addresses else {
        let lines = in_lines(shown);
        let lines: Vec<&str> = lines.lines().collect();
        return lines.join("\\") + "\n";
    };
    let line = |line: &String| format!("{}: {}    {line}\n", it.index, it.name);
    addresses.iter().map(line).collect()
}

fn brief(shown: &Shown<'_>) -> String {
    let it = shown.it;
    let name = match it.is_port() {
        true => it.name.clone(),
        false => format!("{}@{}", it.name, shown.state.port_of(it).name),
    };
    let last = match shown.addresses {
        // The second word of each line is the address.
        Some(lines) => {
            let nets = lines.iter().filter_map(|line| line.split(' ').nth(1));
            nets.map(|net| format!("{net} ")).collect()
        }
        None => {
            let mac = crate::net::names::mac_text(it.mac);
            format!("{mac} <{}>", super::link::flags(it).join(","))
        }
    };
    format!("{name:<16} {:<14} {last}\n", super::link::operstate(it))
}
