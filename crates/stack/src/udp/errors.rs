//! Errors that come back about datagrams of ours.

use super::Udp;
use crate::effects::{Effects, Event};
use crate::error::Reason;
use crate::ip::{PathCause, PathError};
use crate::link::Cx;
use crate::options::MtuDiscovery;
use crate::time::Instant;

impl Udp {
    /// RFC 1122 4.1.3.3: errors go up, but only to a socket that is connected to that peer.
    pub fn on_path_error(
        &mut self,
        now: Instant,
        error: &PathError,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let reason = match error.cause {
            PathCause::PortUnreachable | PathCause::ProtocolUnreachable => Reason::Refused,
            PathCause::NetUnreachable => Reason::NetUnreachable,
            PathCause::HostUnreachable
            | PathCause::SourceRouteFailed
            | PathCause::AdminProhibited
            | PathCause::TimeExceeded => Reason::HostUnreachable,
            PathCause::FragmentationNeeded { .. } => Reason::MessageTooLong,
            PathCause::ParameterProblem => Reason::ProtocolError,
        };
        let Some(udp) = self.find_taker(error.remote, error.local) else {
            return;
        };
        let Ok(socket) = self.find_mut(udp) else {
            return;
        };
        if let PathCause::FragmentationNeeded { mtu } = error.cause {
            let discovery = socket.mtu_discovery(error.remote.ip());
            if discovery.learns() {
                cx.learn_path_mtu(now, error.remote.ip(), mtu);
                socket.hop.1 = None;
            }
            // Who does not want to know of it is not told.
            if !discovery.learns() || discovery == MtuDiscovery::Dont {
                return;
            }
        }
        if socket.remote == Some(error.remote) {
            fx.event(Event::UdpFailed { udp, reason });
        }
    }
}
