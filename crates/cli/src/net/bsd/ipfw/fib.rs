//! Rules that choose a routing table.

use std::net::IpAddr;

use slipstack_channel::control::net::{Change, RuleEntry};

use super::super::{fib_of, table_of};
use super::firewall::Firewall;
use super::text::net_text;
use crate::failure::Failure;
use crate::net::names::parse_net;
use crate::net::words::Words;

impl Firewall<'_> {
    /// `add [N] setfib F ip from NET to any out`
    pub fn add_fib(&mut self, mut words: Words<'_>, number: u32) -> Result<(), Failure> {
        let table = table_of(words.parsed("setfib")?)?;
        match words.next() {
            Some("ip" | "all" | "ip4" | "ipv4" | "ip6" | "ipv6") => {}
            Some(other) => {
                return Err(Failure::new(format!(
                    "ipfw: setfib for \"{other}\" alone is not supported: a table is chosen by \
                     addresses"
                )));
            }
            None => return Err(words.missing("ip")),
        }
        let from = side(&mut words, "from")?;
        let to = side(&mut words, "to")?;
        match words.next() {
            None | Some("out") => {}
            Some("in") => {
                return Err(Failure::new(
                    "ipfw: setfib of packets that come in is not supported: what leaves is routed",
                ));
            }
            Some(other) => return Err(words.unknown(other)),
        }
        words.end()?;
        if from.is_none() && to.is_none() {
            return Err(words.missing("a network to go by"));
        }
        let rule = RuleEntry {
            priority: number,
            from,
            to,
            table,
            ..RuleEntry::default()
        };
        let said = fib_text(&rule);
        self.change(Vec::new(), vec![Change::AddRule(rule.clone())])?;
        self.state.rules.push(rule);
        self.say(&format!("{number:05} {said}\n"))
    }
}

pub fn fib_text(rule: &RuleEntry) -> String {
    let net = |net: Option<(IpAddr, u8)>| net.map_or("any".to_owned(), net_text);
    let kind = if rule.is_v6() { "ip6" } else { "ip" };
    let (fib, from, to) = (fib_of(rule.table), net(rule.from), net(rule.to));
    format!("setfib {fib} {kind} from {from} to {to} out")
}

fn side(words: &mut Words<'_>, which: &str) -> Result<Option<(IpAddr, u8)>, Failure> {
    if !words.take(which) {
        return Err(words.missing(which));
    }
    match words.value(which)? {
        "any" => Ok(None),
        text => {
            let net = parse_net(text).ok_or_else(|| words.wrong(which, text))?;
            Ok(Some(net))
        }
    }
}
