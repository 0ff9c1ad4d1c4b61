//! The transport protocol and ports by which rules select packets.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};

use serde::{Deserialize, Serialize};

/// Protocols that rules name; others are numbers.
const PROTOCOLS: [(&str, u8); 5] = [
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("ipv6-icmp", 58),
    ("sctp", 132),
];

/// Returns a protocol of IP by name or number, which is not zero.
#[must_use]
pub fn parse_protocol(text: &str) -> Option<u8> {
    let named = PROTOCOLS.iter().find(|(name, _)| *name == text);
    let number = named.map_or_else(|| text.parse().ok(), |(_, number)| Some(*number));
    number.filter(|number| *number != 0)
}

/// Returns how a rule names a protocol.
#[must_use]
pub fn protocol_text(number: u8) -> String {
    let named = PROTOCOLS.iter().find(|(_, known)| *known == number);
    named.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}

/// Returns the ports of `80` or `8000-8080`; zero is no port.
#[must_use]
pub fn parse_ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let ports: (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    (ports.0 > 0 && ports.0 <= ports.1).then_some(ports)
}

/// As `ip rule` has it: a range only where there are several.
fn ports_text((first, last): (u16, u16)) -> String {
    match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    }
}

/// The protocol and ports of a packet. Zero stands for a number that it does not have, or not yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// IP protocol number.
    pub protocol: u8,
    pub source_port: u16,
    pub destination_port: u16,
}

impl Carried {
    pub const NOTHING: Carried = Carried {
        protocol: 0,
        source_port: 0,
        destination_port: 0,
    };
}

/// The protocol and the ports, from and to, that a rule selects by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedRange {
    pub protocol: Option<u8>,
    pub source_ports: Option<(u16, u16)>,
    pub destination_ports: Option<(u16, u16)>,
}

impl CarriedRange {
    pub const ALL: CarriedRange = CarriedRange {
        protocol: None,
        source_ports: None,
        destination_ports: None,
    };

    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == CarriedRange::ALL
    }

    /// Returns whether it contains what a packet carries.
    #[must_use]
    pub fn contains(&self, carried: Carried) -> bool {
        let has = |ports: Option<(u16, u16)>, port: u16| {
            ports.is_none_or(|(first, last)| (first..=last).contains(&port))
        };
        self.protocol
            .is_none_or(|number| number == carried.protocol)
            && has(self.source_ports, carried.source_port)
            && has(self.destination_ports, carried.destination_port)
    }

    /// The words of `ip rule` for it, each with its value.
    pub fn words(&self) -> impl Iterator<Item = (&'static str, String)> {
        let ports = [
            ("sport", self.source_ports),
            ("dport", self.destination_ports),
        ];
        let ports = ports.into_iter();
        let ports = ports.filter_map(|(word, ports)| Some((word, ports_text(ports?))));
        let protocol = self
            .protocol
            .map(|number| ("ipproto", protocol_text(number)));
        protocol.into_iter().chain(ports)
    }

    /// Something that it contains.
    #[must_use]
    pub fn first(&self) -> Carried {
        let first = |ports: Option<(u16, u16)>| ports.map_or(0, |(first, _)| first);
        Carried {
            protocol: self.protocol.unwrap_or(0),
            source_port: first(self.source_ports),
            destination_port: first(self.destination_ports),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_matches_if_protocol_and_both_ports_do() {
        let web = Carried {
            protocol: 6,
            source_port: 40_000,
            destination_port: 80,
        };
        let to = |protocol, ports| CarriedRange {
            protocol,
            destination_ports: Some(ports),
            ..CarriedRange::ALL
        };
        for (range, is_in) in [
            (CarriedRange::ALL, true),
            (to(Some(6), (80, 80)), true),
            (to(None, (1, 80)), true),
            (to(Some(17), (80, 80)), false),
            (to(Some(6), (81, 90)), false),
        ] {
            assert_eq!(range.contains(web), is_in, "{range:?}");
            assert!(range.contains(range.first()));
        }
        // A port that is not chosen yet is in no range.
        assert!(!to(None, (1, 65_535)).contains(Carried::NOTHING));
    }
}
