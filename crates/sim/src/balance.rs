//! Balance of frames: a stack has accepted each one or dropped it for a counted reason, and each
//! frame that left a host has arrived at another or was lost on a link.

use slipstack_stack::{Counter, Counters};

use crate::host::Host;

/// The packets received at one layer, and all counters of their outcomes there.
struct Layer {
    name: &'static str,
    came: &'static [Counter],
    went: &'static [&'static [Counter]],
}

const ARP: &[Counter] = &[
    Counter::RxArpRequests,
    Counter::RxArpReplies,
    Counter::DropArpMalformed,
    Counter::DropArpSender,
    Counter::DropArpConflict,
    Counter::DropArpOffLink,
    Counter::DropArpUnsolicited,
];
const ETHERNET: &[Counter] = &[
    Counter::DropEthernetShort,
    Counter::DropEthernetType,
    Counter::DropEthernetVlan,
    Counter::DropEthernetNotOurs,
];
const IPV4: &[Counter] = &[
    Counter::RxIpv4,
    Counter::DropIpv4Malformed,
    Counter::DropIpv4Checksum,
    Counter::DropIpv4Martian,
    Counter::DropIpv4Spoofed,
    Counter::DropIpv4NotOurs,
    Counter::DropIpv4LinkGroup,
    Counter::DropIpv4SourceRoute,
    Counter::DropIpv4Options,
];
const IPV6: &[Counter] = &[
    Counter::RxIpv6,
    Counter::DropIpv6Malformed,
    Counter::DropIpv6Martian,
    Counter::DropIpv6Spoofed,
    Counter::DropIpv6NotOurs,
    Counter::DropIpv6LinkGroup,
    Counter::DropIpv6Extension,
    Counter::DropNdpFragment,
];
const FRAGMENTS: &[Counter] = &[Counter::RxFragments];
const PROTOCOLS: &[Counter] = &[Counter::DropIpv4Protocol, Counter::DropIpv6Protocol];
const ICMP: &[Counter] = &[
    Counter::RxIcmpEchos,
    Counter::RxIcmpErrors,
    Counter::DropIcmpMalformed,
    Counter::DropIcmpChecksum,
    Counter::DropIcmpGroup,
    Counter::DropIcmpQuote,
    Counter::DropIcmpType,
    Counter::DropIcmpRole,
    Counter::RxGroupReports,
    Counter::RxIgmpQueries,
    Counter::DropIgmpMalformed,
    Counter::DropIgmpType,
    Counter::RxMldQueries,
    Counter::DropMldMalformed,
];
const NDP: &[Counter] = &[
    Counter::RxNdpSolicitations,
    Counter::RxNdpAdvertisements,
    Counter::RxNdpRouters,
    Counter::RxNdpRedirects,
    Counter::DropNdpHopLimit,
    Counter::DropNdpMalformed,
    Counter::DropNdpNotOurs,
    Counter::DropNdpOffLink,
    Counter::DropNdpLooped,
    Counter::DropNdpConflict,
    Counter::DropNdpUnsolicited,
    Counter::DropNdpRouter,
    Counter::DropNdpRedirect,
];
const UDP: &[Counter] = &[
    Counter::RxUdp,
    Counter::DropUdpMalformed,
    Counter::DropUdpChecksum,
    Counter::DropUdpPort,
    Counter::DropUdpGroup,
];
const TCP: &[Counter] = &[
    Counter::RxTcp,
    Counter::DropTcpChecksum,
    Counter::DropTcpMalformed,
    Counter::DropTcpGroup,
];

/// Outcomes of segments that header prediction has not taken.
const SEGMENTS: &[Counter] = &[
    Counter::RxTcpTaken,
    Counter::RxTcpResets,
    Counter::TcpStrays,
    Counter::DropTcpPort,
    Counter::DropTcpRst,
    Counter::DropTcpSyn,
    Counter::DropTcpNoAck,
    Counter::DropTcpAck,
    Counter::DropTcpPaws,
    Counter::DropTcpOutOfWindow,
    Counter::DropTcpNoRoom,
    Counter::DropTcpReassembly,
    Counter::DropTcpClosed,
    Counter::DropTcpState,
    Counter::DropTcpWindow,
    Counter::DropTcpRoute,
    Counter::DropTcpBacklog,
    Counter::DropTcpSynTable,
    Counter::DropTcpDeferred,
];

/// A datagram to a group is delivered to each of its sockets: worlds have none.
const LAYERS: &[Layer] = &[
    Layer {
        name: "frames",
        // A packet made of fragments comes in again.
        came: &[Counter::RxFrames, Counter::RxReassembled],
        went: &[ETHERNET, ARP, IPV4, IPV6, FRAGMENTS],
    },
    Layer {
        name: "packets",
        came: &[Counter::RxIpv4, Counter::RxIpv6],
        went: &[PROTOCOLS, ICMP, NDP, UDP, TCP],
    },
    Layer {
        name: "segments",
        came: &[Counter::RxTcpSteps],
        went: &[SEGMENTS],
    },
];
/// Outcomes that only damaged frames may have.
const DAMAGE: &[Counter] = &[
    Counter::DropEthernetShort,
    Counter::DropEthernetType,
    Counter::DropArpMalformed,
    Counter::DropIpv4Malformed,
    Counter::DropIpv4Checksum,
    Counter::DropIpv6Malformed,
    Counter::DropIpv6Extension,
    Counter::DropIcmpMalformed,
    Counter::DropIcmpChecksum,
    Counter::DropNdpMalformed,
    Counter::DropTcpChecksum,
    Counter::DropTcpMalformed,
];

/// Frames received = taken + dropped by reason.
pub fn of_counters(counters: &Counters) -> Result<(), String> {
    for layer in LAYERS {
        let came = sum(counters, layer.came);
        let went: u64 = layer.went.iter().map(|part| sum(counters, part)).sum();
        if came != went {
            return Err(format!(
                "of {came} {} received, {went} are accounted for",
                layer.name
            ));
        }
    }
    Ok(())
}

fn sum(counters: &Counters, rows: &[Counter]) -> u64 {
    rows.iter().map(|row| counters.value(*row)).sum()
}

/// Between two turns: the device's frames against the stack's counters.
pub fn of_host(host: &Host) -> Result<(), String> {
    let counters = host.stack.counters();
    of_counters(counters)?;
    let (sent, counted) = (host.fx.transmitted, counters.value(Counter::TxFrames));
    if sent != counted {
        return Err(format!("{sent} frames sent, {counted} counted"));
    }
    let (looped, counted) = (host.looped, counters.value(Counter::TxLocal));
    if looped != counted {
        return Err(format!("{looped} frames looped back, {counted} counted"));
    }
    let (left_to_others, counted) = (host.fx.strays, counters.value(Counter::TcpStrays));
    if left_to_others != counted {
        return Err(format!(
            "{left_to_others} segments left to other stacks, {counted} counted"
        ));
    }
    host.post.balance()?;
    let came = host.arrived + looped + host.posted;
    let taken = counters.value(Counter::RxFrames);
    let left = host.overruns + host.inbox.len() as u64;
    if came != taken + left {
        return Err(format!(
            "{came} frames came, {taken} were counted and {left} not taken"
        ));
    }
    Ok(())
}

/// On a way that damages nothing, nothing is malformed.
pub fn is_unharmed(counters: &Counters) -> Result<(), String> {
    match DAMAGE.iter().find(|row| counters.value(**row) != 0) {
        Some(row) => Err(format!("{} on a way without damage", row.name())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_stack_that_saw_every_kind() -> Counters {
        let mut counters = Counters::default();
        let parts = [ETHERNET, ARP, IPV4, IPV6, FRAGMENTS];
        let is_last = |row: &&Counter| !matches!(row, Counter::RxIpv4 | Counter::RxIpv6);
        for row in parts.into_iter().flatten().filter(is_last) {
            counters.bump(*row);
            counters.bump(Counter::RxFrames);
        }
        for row in [PROTOCOLS, ICMP, NDP, UDP, TCP].into_iter().flatten() {
            counters.bump(*row);
            counters.bump(Counter::RxIpv4);
            counters.bump(Counter::RxFrames);
        }
        for row in SEGMENTS {
            counters.bump(*row);
            counters.bump(Counter::RxTcpSteps);
        }
        counters
    }

    #[test]
    fn the_audit_finds_drops_and_frames_counted_alone() {
        let whole = a_stack_that_saw_every_kind();
        let parts = [ETHERNET, ARP, IPV4, IPV6, FRAGMENTS];
        let upper = [PROTOCOLS, ICMP, NDP, UDP, TCP, SEGMENTS];
        assert_eq!(of_counters(&whole), Ok(()));
        let rows = parts.iter().chain(&upper).copied().flatten();
        let came = [
            Counter::RxFrames,
            Counter::RxReassembled,
            Counter::RxTcpSteps,
        ];
        for row in rows.chain(&came) {
            let mut wrong = whole.clone();
            wrong.bump(*row);
            assert!(of_counters(&wrong).is_err(), "{}", row.name());
        }
    }

    #[test]
    fn the_audit_finds_damage_without_a_cause() {
        for row in DAMAGE {
            let mut counters = Counters::default();
            assert_eq!(is_unharmed(&counters), Ok(()));
            counters.bump(*row);
            assert!(is_unharmed(&counters).is_err(), "{}", row.name());
        }
    }
}
