//! Counters by the names that Linux gives them in /proc/net/snmp and /proc/net/netstat.

use super::engines::Values;

/// Names with the counters of ours whose sum they are. A frame that the device has joined counts
/// once here, as a joined packet does for the kernel; `Udp`, `Icmp` and `IpForwDatagrams` combine
/// both families, as our counters do.
const NAMES: &[(&str, &[&str])] = &[
    (
        "IpInReceives",
        &[
            "rx_ipv4",
            "drop_ipv4_malformed",
            "drop_ipv4_checksum",
            "drop_ipv4_options",
            "drop_ipv4_martian",
            "drop_ipv4_spoofed",
            "drop_ipv4_not_ours",
            "drop_ipv4_link_group",
            "drop_ipv4_source_route",
        ],
    ),
    (
        "IpInHdrErrors",
        &[
            "drop_ipv4_malformed",
            "drop_ipv4_checksum",
            "drop_ipv4_options",
            "drop_ipv4_source_route",
        ],
    ),
    (
        "IpInAddrErrors",
        &[
            "drop_ipv4_martian",
            "drop_ipv4_spoofed",
            "drop_ipv4_not_ours",
        ],
    ),
    ("IpInUnknownProtos", &["drop_ipv4_protocol"]),
    ("IpForwDatagrams", &["forwarded"]),
    ("IcmpInEchos", &["rx_icmp_echos"]),
    ("IcmpInCsumErrors", &["drop_icmp_checksum"]),
    ("IcmpOutEchoReps", &["tx_icmp_echos"]),
    ("IcmpOutRateLimitGlobal", &["drop_icmp_rate"]),
    ("TcpActiveOpens", &["tcp_connects"]),
    ("TcpPassiveOpens", &["tcp_accepted"]),
    (
        "TcpInSegs",
        &["rx_tcp", "drop_tcp_malformed", "drop_tcp_checksum"],
    ),
    ("TcpOutSegs", &["tx_tcp"]),
    (
        "TcpRetransSegs",
        &[
            "tx_tcp_resent_fast",
            "tx_tcp_resent_timeout",
            "tx_tcp_tail_probes",
        ],
    ),
    ("TcpInErrs", &["drop_tcp_malformed", "drop_tcp_checksum"]),
    ("TcpOutRsts", &["tx_tcp_resets"]),
    ("TcpInCsumErrors", &["drop_tcp_checksum"]),
    ("UdpInDatagrams", &["rx_udp"]),
    ("UdpNoPorts", &["drop_udp_port"]),
    (
        "UdpInErrors",
        &[
            "drop_udp_malformed",
            "drop_udp_checksum",
            "engine_rx_datagrams_lost",
        ],
    ),
    ("UdpOutDatagrams", &["tx_udp"]),
    ("UdpRcvbufErrors", &["engine_rx_datagrams_lost"]),
    ("UdpInCsumErrors", &["drop_udp_checksum"]),
    (
        "Ip6InReceives",
        &[
            "rx_ipv6",
            "drop_ipv6_malformed",
            "drop_ipv6_martian",
            "drop_ipv6_spoofed",
            "drop_ipv6_not_ours",
            "drop_ipv6_link_group",
        ],
    ),
    ("Ip6InHdrErrors", &["drop_ipv6_malformed"]),
    (
        "Ip6InAddrErrors",
        &[
            "drop_ipv6_martian",
            "drop_ipv6_spoofed",
            "drop_ipv6_not_ours",
        ],
    ),
    ("Ip6InUnknownProtos", &["drop_ipv6_protocol"]),
    ("Icmp6InRouterAdvertisements", &["rx_ndp_routers"]),
    ("Icmp6InNeighborSolicits", &["rx_ndp_solicitations"]),
    ("Icmp6InNeighborAdvertisements", &["rx_ndp_advertisements"]),
    ("Icmp6InRedirects", &["rx_ndp_redirects"]),
    ("Icmp6OutRouterSolicits", &["tx_ndp_router_solicitations"]),
    (
        "Icmp6OutNeighborSolicits",
        &["tx_ndp_solicitations", "tx_ndp_probes"],
    ),
    ("Icmp6OutNeighborAdvertisements", &["tx_ndp_advertisements"]),
    ("Icmp6OutMLDv2Reports", &["tx_mld_reports"]),
    ("TcpExtSyncookiesSent", &["tx_tcp_cookies"]),
    ("TcpExtSyncookiesRecv", &["rx_tcp_cookies"]),
    ("TcpExtSyncookiesFailed", &["rx_tcp_bad_cookies"]),
    ("TcpExtOutOfWindowIcmps", &["drop_tcp_icmp"]),
    ("TcpExtPAWSEstab", &["drop_tcp_paws"]),
    ("TcpExtListenOverflows", &["drop_tcp_backlog"]),
    (
        "TcpExtListenDrops",
        &["drop_tcp_backlog", "drop_tcp_syn_table"],
    ),
    ("TcpExtTCPReqQFullDrop", &["drop_tcp_syn_table"]),
    ("TcpExtTCPFastRetrans", &["tx_tcp_resent_fast"]),
    ("TcpExtTCPSlowStartRetrans", &["tx_tcp_resent_timeout"]),
    ("TcpExtTCPTimeouts", &["tcp_timeouts"]),
    ("TcpExtTCPLossProbes", &["tx_tcp_tail_probes"]),
    ("TcpExtTCPAbortOnData", &["drop_tcp_closed"]),
    ("TcpExtTCPAbortOnMemory", &["tcp_orphans_reset"]),
    ("TcpExtTCPDeferAcceptDrop", &["drop_tcp_deferred"]),
    ("TcpExtTCPRcvCoalesce", &["rx_tcp_merged"]),
    ("TcpExtTCPOFOQueue", &["rx_tcp_out_of_order"]),
    ("TcpExtTCPOFODrop", &["drop_tcp_reassembly"]),
    ("TcpExtTCPChallengeACK", &["tx_tcp_challenges"]),
    ("TcpExtTCPSYNChallenge", &["drop_tcp_syn"]),
    ("TcpExtTCPFastOpenActive", &["tcp_syn_data_taken"]),
    ("TcpExtTCPFastOpenPassive", &["tcp_fast_open_accepted"]),
    ("TcpExtTCPFastOpenPassiveFail", &["rx_tcp_bad_fast_open"]),
    (
        "TcpExtTCPFastOpenListenOverflow",
        &["rx_tcp_fast_open_full"],
    ),
    ("TcpExtTCPWinProbe", &["tx_tcp_window_probes"]),
    ("TcpExtTCPKeepAlive", &["tx_tcp_keep_alives"]),
    ("TcpExtTCPMTUPSuccess", &["tcp_mtu_raised"]),
    ("TcpExtTCPRcvQDrop", &["drop_tcp_no_room"]),
];

/// Returns the counters by Linux's names, in Linux's order, then those that only Slipstack has.
pub fn named(values: &Values) -> Vec<(String, u64)> {
    let value = |name: &&str| values.get(*name).copied().unwrap_or(0);
    let of_linux = NAMES.iter().map(|(name, parts)| {
        let sum = parts.iter().map(value).sum();
        ((*name).to_owned(), sum)
    });
    let has_name = |name: &str| NAMES.iter().any(|(_, parts)| parts.contains(&name));
    let own = values.iter().filter(|(name, _)| !has_name(name));
    of_linux
        .chain(own.map(|(name, value)| (name.clone(), *value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_linux_is_a_sum_and_no_counter_is_left_out() {
        let values = [("rx_tcp", 5), ("drop_tcp_checksum", 1), ("engine_turns", 9)];
        let values = values.map(|(name, value)| (name.to_owned(), value));
        let named = named(&Values::from(values));
        let value = |name: &str| named.iter().find(|it| it.0 == name).map(|it| it.1);
        assert_eq!(value("TcpInSegs"), Some(6));
        assert_eq!(value("TcpInCsumErrors"), Some(1));
        assert_eq!(value("engine_turns"), Some(9));
        assert_eq!(value("rx_tcp"), None);
        assert_eq!(value("UdpNoPorts"), Some(0));
    }

    #[test]
    fn linux_counter_names_are_unique() {
        let names: std::collections::BTreeSet<_> = NAMES.iter().map(|it| it.0).collect();
        assert_eq!(names.len(), NAMES.len());
    }
}
