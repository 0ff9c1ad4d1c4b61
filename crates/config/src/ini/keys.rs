//! Every key of F-Stack's configuration, and its meaning here.

/// The use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Key that sets something; [`super::port`] reads it.
    Read,
    /// Without meaning here, for the reason that the sentence gives.
    Moot(&'static str),
    /// Argument of a device of kind `dpdk`, without meaning for others.
    Dpdk(&'static str),
}
use Use::{Dpdk, Moot, Read};

/// The sections; those with a number represent all of their kind.
pub(crate) const SECTIONS: &[(&str, &[(&str, Use)])] = &[
    ("dpdk", DPDK),
    ("pcap", PCAP),
    ("port", PORT),
    ("vlan", VLAN),
    ("vdev", VDEV),
    ("bond", BOND),
    ("rss_check", RSS_CHECK),
    ("kni", KNI),
    ("freebsd.boot", &[]),
    ("freebsd.sysctl", &[]),
];

const NO_DPDK: &str = "the stack reserves no memory of DPDK's";
const NO_HUGE: &str = "the stack needs no huge pages";
const BONDS: &str = "bonds are made by the kernel and named as an interface (--if bond0)";
const LEASES: &str = "outgoing ports are leased to engines, so that answers reach their engine";
const SHARED: &str = "addresses belong to the stack, whichever interface they are reached by";

const DPDK: &[(&str, Use)] = &[
    ("lcore_mask", Read),
    ("channel", Dpdk(NO_DPDK)),
    ("memory", Dpdk(NO_DPDK)),
    ("no_huge", Dpdk(NO_HUGE)),
    (
        "base_virtaddr",
        Dpdk("shared memory holds offsets, so it may lie anywhere"),
    ),
    (
        "file_prefix",
        Dpdk("groups of instances are separate: each interface has its own"),
    ),
    ("allow", Read),
    ("pci_whitelist", Read),
    ("port_list", Read),
    ("nb_vdev", Read),
    ("nb_bond", Read),
    ("promiscuous", Read),
    (
        "numa_on",
        Moot("memory is placed where its first user runs"),
    ),
    ("tso", Read),
    ("tx_csum_offoad_skip", Read),
    (
        "vlan_strip",
        Dpdk("tagged and stripped frames are both understood"),
    ),
    ("vlan_filter", Read),
    (
        "idle_sleep",
        Dpdk("waiting threads poll for as long as it has paid off (--spin-us)"),
    ),
    (
        "pkt_tx_delay",
        Moot("frames leave at the end of the turn that made them"),
    ),
    (
        "symmetric_rss",
        Dpdk("answers are steered to their engine by port"),
    ),
    ("log_level", Read),
    ("fstack_log_level", Read),
    ("fstack_log_file_prefix", Read),
];

const PCAP: &[(&str, Use)] = &[
    ("enable", Read),
    ("snaplen", Read),
    ("savelen", Read),
    ("savepath", Read),
];

const PORT: &[(&str, Use)] = &[
    ("addr", Read),
    ("netmask", Read),
    ("broadcast", Read),
    ("gateway", Read),
    ("if_name", Read),
    ("addr6", Read),
    ("prefix_len", Read),
    ("gateway6", Read),
    ("vip_ifname", Moot(SHARED)),
    ("vip_addr", Read),
    ("vip_addr6", Read),
    ("vip_prefix_len", Read),
    ("ipfw_pr", Read),
    (
        "lcore_list",
        Moot("every process of lcore_mask serves every port"),
    ),
    (
        "slave_port_list",
        Moot("a bond knows its members, whoever makes it"),
    ),
];

const VLAN: &[(&str, Use)] = &[
    ("portid", Read),
    ("addr", Read),
    ("netmask", Read),
    ("broadcast", Read),
    ("gateway", Read),
    ("addr6", Read),
    ("prefix_len", Read),
    ("gateway6", Read),
    ("vip_ifname", Moot(SHARED)),
    ("vip_addr", Read),
    ("vip_addr6", Read),
    ("vip_prefix_len", Read),
    ("ipfw_pr", Read),
];

const VDEV: &[(&str, Use)] = &[
    ("path", Read),
    ("iface", Moot("F-Stack does not use it either")),
    ("queues", Read),
    ("queue_size", Read),
    ("mac", Read),
    ("cq", Read),
];

const BOND: &[(&str, Use)] = &[
    ("mode", Dpdk(BONDS)),
    ("slave", Dpdk(BONDS)),
    ("primary", Dpdk(BONDS)),
    ("mac", Dpdk(BONDS)),
    ("socket_id", Dpdk(BONDS)),
    ("xmit_policy", Dpdk(BONDS)),
    ("lsc_poll_period_ms", Dpdk(BONDS)),
    ("up_delay", Dpdk(BONDS)),
    ("down_delay", Dpdk(BONDS)),
];

const RSS_CHECK: &[(&str, Use)] = &[("enable", Moot(LEASES)), ("rss_tbl", Moot(LEASES))];

const KNI: &[(&str, Use)] = &[
    ("enable", Read),
    ("method", Read),
    ("tcp_port", Read),
    ("udp_port", Read),
    ("kni_action", Read),
    ("console_packets_ratelimit", Read),
    ("general_packets_ratelimit", Read),
    ("kernel_packets_ratelimit", Read),
];

/// Returns a section's kind and number: `port0` is `port` with 0.
pub(crate) fn section_of(name: &str) -> Option<(&'static str, Option<u32>)> {
    let known = SECTIONS.iter().map(|(kind, _)| *kind);
    for kind in known {
        let numbered = matches!(kind, "port" | "vlan" | "vdev" | "bond");
        match (name.strip_prefix(kind), numbered) {
            (Some(""), false) => return Some((kind, None)),
            (Some(digits), true) => {
                if let Ok(number) = super::fields::number(digits, 0, 4095) {
                    return Some((kind, Some(number)));
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the keys of a section's kind.
pub(crate) fn keys_of(kind: &str) -> &'static [(&'static str, Use)] {
    SECTIONS
        .iter()
        .find(|(name, _)| *name == kind)
        .map_or(&[], |(_, keys)| *keys)
}
