//! Counters in the sentences of FreeBSD's `netstat -s`.

use super::engines::Values;
use super::linux::named;

/// A protocol's title, and its sentences with the Linux counters whose sum each shows.
type Protocol = (
    &'static str,
    &'static [(&'static str, &'static [&'static str])],
);

const PROTOCOLS: &[Protocol] = &[
    (
        "tcp",
        &[
            ("packets sent", &["TcpOutSegs"]),
            ("data packets retransmitted", &["TcpRetransSegs"]),
            ("window probe packets", &["TcpExtTCPWinProbe"]),
            ("packets received", &["TcpInSegs"]),
            ("discarded for bad checksums", &["TcpInCsumErrors"]),
            ("out-of-order packets", &["TcpExtTCPOFOQueue"]),
            ("connection requests", &["TcpActiveOpens"]),
            ("connection accepts", &["TcpPassiveOpens"]),
            ("listen queue overflows", &["TcpExtListenOverflows"]),
            ("retransmit timeouts", &["TcpExtTCPTimeouts"]),
            ("keepalive probes sent", &["TcpExtTCPKeepAlive"]),
            ("cookies sent", &["TcpExtSyncookiesSent"]),
            ("cookies received", &["TcpExtSyncookiesRecv"]),
            ("resets sent", &["TcpOutRsts"]),
        ],
    ),
    (
        "udp",
        &[
            (
                "datagrams received",
                &["UdpInDatagrams", "UdpInErrors", "UdpNoPorts"],
            ),
            ("with bad checksum", &["UdpInCsumErrors"]),
            ("dropped due to no socket", &["UdpNoPorts"]),
            ("dropped due to full socket buffers", &["UdpRcvbufErrors"]),
            ("delivered", &["UdpInDatagrams"]),
            ("datagrams output", &["UdpOutDatagrams"]),
        ],
    ),
    (
        "ip",
        &[
            ("total packets received", &["IpInReceives"]),
            ("bad header checksums", &["IpInHdrErrors"]),
            (
                "packets for unknown/unsupported protocol",
                &["IpInUnknownProtos"],
            ),
            ("packets forwarded", &["IpForwDatagrams"]),
            ("packets not forwardable", &["IpInAddrErrors"]),
        ],
    ),
    (
        "icmp",
        &[
            ("messages with bad checksum", &["IcmpInCsumErrors"]),
            ("echo requests received", &["IcmpInEchos"]),
            ("message responses generated", &["IcmpOutEchoReps"]),
        ],
    ),
    (
        "ip6",
        &[
            ("total packets received", &["Ip6InReceives"]),
            ("with incorrect header", &["Ip6InHdrErrors"]),
            ("packets not forwardable", &["Ip6InAddrErrors"]),
        ],
    ),
    (
        "icmp6",
        &[
            (
                "neighbor solicitations received",
                &["Icmp6InNeighborSolicits"],
            ),
            (
                "neighbor advertisements received",
                &["Icmp6InNeighborAdvertisements"],
            ),
            (
                "router advertisements received",
                &["Icmp6InRouterAdvertisements"],
            ),
        ],
    ),
];

/// Names of the protocols that have sentences.
pub fn protocols() -> impl Iterator<Item = &'static str> {
    PROTOCOLS.iter().map(|(name, _)| *name)
}

/// The sentences of all protocols, or of one.
pub fn text(values: &Values, protocol: Option<&str>) -> String {
    let named = named(values);
    let value = |name: &&str| named.iter().find(|it| it.0 == *name).map_or(0, |it| it.1);
    let mut text = String::new();
    let wanted = PROTOCOLS
        .iter()
        .filter(|(name, _)| protocol.is_none_or(|it| it == *name));
    for (name, sentences) in wanted {
        text.push_str(&format!("{name}:\n"));
        for (sentence, parts) in *sentences {
            let sum: u64 = parts.iter().map(value).sum();
            text.push_str(&format!("\t{sum} {sentence}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_sums_counters_with_linux_names() {
        let known = named(&Values::new());
        for (_, parts) in PROTOCOLS.iter().flat_map(|it| it.1) {
            for part in *parts {
                assert!(known.iter().any(|(name, _)| name == part), "{part}");
            }
        }
    }
}
