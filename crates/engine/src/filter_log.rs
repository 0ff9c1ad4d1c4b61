//! Matches of the packet filter's rules as lines of a log, in the form of ipfw.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use slipstack_channel::control::net::{FilterAction, FilterRule, NetworkState, UnreachCode};
use slipstack_stack::filter::{FilterDirection, Logged, Packet};

use crate::filtering::HeldFilter;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

impl HeldFilter {
    /// A line for each match of a rule that is still there.
    pub fn lines(&self, logged: &[Logged], network: &NetworkState) -> Vec<String> {
        let mut lines = Vec::new();
        for logged in logged {
            let Some(rule) = self.rules().iter().find(|rule| rule.id == logged.rule) else {
                continue;
            };
            lines.push(line(rule, &logged.packet, network));
            if logged.is_last {
                let (number, max) = (rule.number, rule.log.unwrap_or(0));
                lines.push(format!("ipfw: limit {max} reached on entry {number}"));
            }
        }
        lines
    }
}

/// `ipfw: 100 Deny TCP 10.0.0.1:4000 10.0.0.2:80 in via eth0`
fn line(rule: &FilterRule, packet: &Packet, network: &NetworkState) -> String {
    let action = match rule.action {
        FilterAction::Allow => "Accept",
        FilterAction::Deny => "Deny",
        FilterAction::Count => "Count",
        FilterAction::SkipTo(_) => "SkipTo",
        FilterAction::SetFib(_) => "SetFib",
        FilterAction::Reset => "Reset",
        FilterAction::Unreach(UnreachCode::Host) => "Reject",
        FilterAction::Unreach(_) => "Unreach",
        FilterAction::CheckState => "CheckState",
    };
    let protocol = match packet.protocol {
        TCP => "TCP".to_owned(),
        UDP => "UDP".to_owned(),
        ICMP | ICMPV6 => {
            let name = if packet.is_v6 { "ICMPv6" } else { "ICMP" };
            let kind = packet.icmp_type.map(|kind| format!(":{kind}"));
            format!("{name}{}", kind.unwrap_or_default())
        }
        number => format!("P:{number}"),
    };
    let (src, dst) = (
        host(packet.src, packet.ports.0),
        host(packet.dst, packet.ports.1),
    );
    let way = match packet.direction {
        FilterDirection::In => "in",
        FilterDirection::Out => "out",
    };
    let interface = network.find_link(packet.link);
    let name = interface.map_or("unknown", |it| it.name.as_str());
    let mut line = format!(
        "ipfw: {} {action} {protocol} {src} {dst} {way} via {name}",
        rule.number
    );
    if packet.is_later_fragment {
        let _ = write!(line, " (frag)");
    }
    line
}

fn host(address: u128, port: u32) -> String {
    let ip = IpAddr::V6(Ipv6Addr::from_bits(address)).to_canonical();
    match (ip, u16::try_from(port)) {
        (IpAddr::V4(ip), Ok(port)) => format!("{ip}:{port}"),
        (IpAddr::V6(ip), Ok(port)) => format!("[{ip}]:{port}"),
        (ip, Err(_)) => ip.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use slipstack_stack::filter::Packet;

    use super::*;

    #[test]
    fn a_filter_match_is_logged_in_ipfws_format() {
        let (src, dst) = ("10.0.0.1:4000", "[fd00::2]:80");
        let packet = |to: &str| {
            let (src, dst) = (src.parse().unwrap(), to.parse().unwrap());
            Packet::plain(FilterDirection::In, TCP, src, dst)
        };
        let rule = FilterRule::new(100, FilterAction::Deny);
        let network = NetworkState::default();
        let text = line(&rule, &packet("10.0.0.2:80"), &network);
        assert_eq!(
            text,
            "ipfw: 100 Deny TCP 10.0.0.1:4000 10.0.0.2:80 in via unknown"
        );
        assert!(line(&rule, &packet(dst), &network).contains(" [fd00::2]:80 in"));
    }
}
