//! Parsing of a frame's flow.

use slipstack_device::{Flow, Transport};
use slipstack_wire::flow::{FrameFlow, is_group_frame};
use slipstack_wire::protocol;

/// The flow of a frame as its receiver sees it.
pub(super) fn find_flow(frame: &[u8]) -> Option<Flow> {
    FrameFlow::parse(frame).as_ref().map(flow_of)
}

/// Returns whether a frame is a SYN without ACK.
pub(crate) fn is_request(frame: &[u8]) -> bool {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let flags = FrameFlow::parse(frame).and_then(|parsed| parsed.tcp_flags());
    flags.is_some_and(|flags| flags & (SYN | ACK) == SYN)
}

/// Returns the port to which a datagram goes that is for one receiver alone.
pub(crate) fn datagram_port(frame: &[u8]) -> Option<u16> {
    let parsed = FrameFlow::parse(frame).filter(|it| it.protocol == protocol::UDP);
    let port = parsed.map(|parsed| parsed.dst.port());
    port.filter(|_| !is_group_frame(frame))
}

pub(super) fn flow_of(parsed: &FrameFlow<'_>) -> Flow {
    Flow {
        proto: proto_of(parsed.protocol),
        local: parsed.dst,
        remote: parsed.src,
    }
}

pub(super) fn proto_of(number: u8) -> Transport {
    match number {
        protocol::TCP => Transport::Tcp,
        _ => Transport::Udp,
    }
}
