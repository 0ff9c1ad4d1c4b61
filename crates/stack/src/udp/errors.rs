//! ICMP errors about our datagrams.

use alloc::vec::Vec;

use super::Udp;
use crate::effects::{Effects, Event};
use crate::error::Reason;
use crate::ip::{IcmpDetails, PathCause, PathError};
use crate::network_layer::Cx;
use crate::options::MtuDiscovery;
use crate::time::Instant;

impl Udp {
    /// RFC 1122 4.1.3.3: errors are passed up. A socket that has not asked for all of them gets
    /// only permanent ones, and only when it is connected to that peer.
    pub fn on_path_error(
        &mut self,
        now: Instant,
        (error, details): (&PathError, &IcmpDetails<'_>),
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(udp) = self.find_taker(
            error.remote,
            error.local,
            cx.net.link_of_own(error.local.ip()),
        ) else {
            return;
        };
        let Ok(socket) = self.find_mut(udp) else {
            return;
        };
        if let PathCause::FragmentationNeeded { mtu } = error.cause {
            let discovery = socket.mtu_discovery(error.remote.ip());
            if discovery.learns() {
                cx.learn_path_mtu(now, error.remote.ip(), mtu);
                self.forget_hops(error.local.port());
            }
            // A socket that ignores path MTUs gets no such error.
            if !discovery.learns() || discovery == MtuDiscovery::Dont {
                return;
            }
        }
        let Ok(socket) = self.find_mut(udp) else {
            return;
        };
        let is_v4 = error.local.is_ipv4();
        let (reason, is_lasting) = if is_v4 {
            judge(details.kind, details.code)
        } else {
            judge_v6(details.kind, details.code)
        };
        let is_asked_for = if is_v4 {
            socket.options.socket.returns_v4
        } else {
            socket.options.socket.returns_v6
        };
        if is_asked_for {
            fx.returned(udp, error.remote, reason, details);
        } else if !is_lasting || socket.remote != Some(error.remote) {
            return;
        }
        fx.event(Event::UdpFailed { udp, reason });
    }
}

impl Udp {
    /// Lets the sockets of a port look up their routes again: any of them may have sent the packet.
    fn forget_hops(&mut self, port: u16) {
        for &index in self.ports.get(&port).map_or(&[][..], Vec::as_slice) {
            if let Some(socket) = &mut self.slots[index as usize].socket {
                socket.hop.1 = None;
            }
        }
    }
}

/// Returns the meaning of an ICMP message for a socket, and whether it is permanent
/// (icmp_err_convert of Linux).
fn judge(kind: u8, code: u8) -> (Reason, bool) {
    const UNREACHABLE: u8 = 3;
    const PARAMETER_PROBLEM: u8 = 12;
    match (kind, code) {
        (UNREACHABLE, 0 | 11) => (Reason::NetUnreachable, false),
        (UNREACHABLE, 1 | 12) => (Reason::HostUnreachable, false),
        (UNREACHABLE, 2) => (Reason::ProtocolUnreachable, true),
        (UNREACHABLE, 3) => (Reason::Refused, true),
        (UNREACHABLE, 4) => (Reason::MessageTooLong, true),
        (UNREACHABLE, 5) => (Reason::RouteFailed, false),
        (UNREACHABLE, 6 | 9) => (Reason::NetUnreachable, true),
        (UNREACHABLE, 7) => (Reason::HostDown, true),
        (UNREACHABLE, 8) => (Reason::NotOnNet, true),
        (UNREACHABLE, 10 | 13..=15) => (Reason::HostUnreachable, true),
        (PARAMETER_PROBLEM, _) => (Reason::ProtocolError, true),
        _ => (Reason::HostUnreachable, false),
    }
}

/// Returns the meaning of an ICMPv6 message for a socket (icmpv6_err_convert of Linux).
fn judge_v6(kind: u8, code: u8) -> (Reason, bool) {
    const UNREACHABLE: u8 = 1;
    const TOO_BIG: u8 = 2;
    const PARAMETER_PROBLEM: u8 = 4;
    match (kind, code) {
        (UNREACHABLE, 0) => (Reason::NetUnreachable, false),
        (UNREACHABLE, 1 | 5 | 6) => (Reason::Prohibited, true),
        (UNREACHABLE, 4) => (Reason::Refused, true),
        (TOO_BIG, _) => (Reason::MessageTooLong, true),
        (UNREACHABLE, 7..) | (PARAMETER_PROBLEM, _) => (Reason::ProtocolError, true),
        _ => (Reason::HostUnreachable, false),
    }
}
