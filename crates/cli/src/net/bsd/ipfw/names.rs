//! Names of protocols, services, TCP's flags and ICMP's types.

use std::fs::read_to_string;

/// Names that rules are written with; others are looked up in `/etc/protocols`.
const PROTOCOLS: [(&str, u8); 14] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", 6),
    ("egp", 8),
    ("udp", 17),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", 58),
    ("ospf", 89),
    ("carp", 112),
    ("sctp", 132),
];
const FLAGS: [(&str, u8); 6] = [
    ("fin", 0x01),
    ("syn", 0x02),
    ("rst", 0x04),
    ("psh", 0x08),
    ("ack", 0x10),
    ("urg", 0x20),
];

/// A protocol's number, by its number or its name.
pub fn protocol(word: &str) -> Option<u8> {
    let named = PROTOCOLS.iter().find(|(name, _)| *name == word);
    let named = named.map(|(_, number)| *number);
    let own = named.or_else(|| word.parse().ok());
    let own = own.or_else(|| (word == "ipv6-icmp").then_some(58));
    own.or_else(|| find("/etc/protocols", word)?.parse().ok())
}

pub fn protocol_text(number: u8) -> String {
    let named = PROTOCOLS.iter().find(|(_, known)| *known == number);
    named.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}

/// A port, by its number or its service's name.
pub fn port(word: &str) -> Option<u16> {
    let is_number = word.bytes().all(|b| b.is_ascii_digit());
    if is_number {
        return word.parse().ok();
    }
    find("/etc/services", word)?.split('/').next()?.parse().ok()
}

/// The name of a port's service, if it has one.
pub fn service(port: u16, protocol: Option<u8>) -> Option<String> {
    let is_udp = protocol == Some(17);
    let wanted = format!("{port}/{}", if is_udp { "udp" } else { "tcp" });
    let text = read_to_string("/etc/services").ok()?;
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| {
        let name = words.next()?;
        (words.next()? == wanted).then(|| name.to_owned())
    })
}

/// The name of an address in `/etc/hosts`.
pub fn host(ip: std::net::IpAddr) -> Option<String> {
    let text = read_to_string("/etc/hosts").ok()?;
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| {
        let known: std::net::IpAddr = words.next()?.parse().ok()?;
        (known == ip).then(|| words.next().map(str::to_owned))?
    })
}

/// Returns the second word of the line whose first word or alias is a name.
fn find(file: &str, name: &str) -> Option<String> {
    let text = read_to_string(file).ok()?;
    let mut lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    lines.find_map(|line| {
        let mut words = line.split_whitespace();
        let (first, second) = (words.next()?, words.next()?);
        let is_it = first == name || words.any(|alias| alias == name);
        is_it.then(|| second.to_owned())
    })
}

/// `syn,!ack`: the bits that are set, and those that are not.
pub fn tcp_flags(text: &str) -> Option<(u8, u8)> {
    let (mut set, mut clear) = (0, 0);
    for part in text.split(',') {
        let (bits, name) = match part.strip_prefix('!') {
            Some(name) => (&mut clear, name),
            None => (&mut set, part),
        };
        *bits |= FLAGS.iter().find(|(known, _)| *known == name)?.1;
    }
    Some((set, clear))
}

pub fn tcp_flags_text(set: u8, clear: u8) -> String {
    let of = |bits: u8, sign: &'static str| {
        let named = FLAGS.iter().filter(move |(_, bit)| bits & bit != 0);
        named.map(move |(name, _)| format!("{sign}{name}"))
    };
    of(set, "")
        .chain(of(clear, "!"))
        .collect::<Vec<_>>()
        .join(",")
}
