//! Detection of partial checksums in frames of senders on this machine. AF_PACKET and TAP mark such
//! frames, AF_XDP and DPDK's packet sockets cannot: there the checksum field itself shows it,
//! because it holds the sum of the pseudo-header.
//!
//! One in 65,536 corrupted frames has a field that happens to hold that sum and would be accepted.
//! The check is therefore made only on links inside the machine, where frames are not corrupted.

use slipstack_wire::checksum::Sum;
use slipstack_wire::flow::FrameFlow;
use slipstack_wire::{PartialChecksum, RxChecksum, RxMeta, protocol};

/// Returns the metadata that the frame itself shows.
pub(crate) fn meta_of(frame: &[u8]) -> RxMeta {
    match is_partial(frame) {
        true => RxMeta {
            checksum: RxChecksum::Partial,
            ..RxMeta::UNKNOWN
        },
        false => RxMeta::UNKNOWN,
    }
}

/// Returns whether the transport checksum is still to be filled in.
pub fn is_partial(frame: &[u8]) -> bool {
    find_partial(frame) == Some(true)
}

fn find_partial(frame: &[u8]) -> Option<bool> {
    let flow = FrameFlow::parse(frame)?;
    let place = PartialChecksum::of_frame(frame)?;
    let at = usize::from(place.start + place.offset);
    let field = frame.get(at..at + 2)?;
    let len = u16::try_from(flow.transport.len()).ok()?;
    let mut sum = Sum::ZERO;
    match (flow.src.ip(), flow.dst.ip()) {
        (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) => {
            sum.add_bytes(&src.octets());
            sum.add_bytes(&dst.octets());
        }
        (std::net::IpAddr::V6(src), std::net::IpAddr::V6(dst)) => {
            sum.add_bytes(&src.octets());
            sum.add_bytes(&dst.octets());
        }
        _ => return None,
    }
    sum.add_bytes(&[0, flow.protocol]);
    sum.add_bytes(&len.to_be_bytes());
    let has_checksum = flow.protocol == protocol::TCP || field != [0, 0];
    Some(has_checksum && u16::from_be_bytes([field[0], field[1]]) == sum.fold())
}
