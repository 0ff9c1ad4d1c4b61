//! Checksums that the stack leaves to a device, for devices that fill in none.

use slipstack_mem::RawSlice;
use slipstack_wire::TxOffload;
use slipstack_wire::checksum::Sum;

use crate::device::{Device, TxFull};

/// Bytes of all headers of the stack's own packets at most. The first part of a forwarded one may
/// be longer.
const HEADER_MAX: usize = 256;
/// Payload that is copied out of shared memory at once, to be summed.
const PIECE: usize = 512;

/// Sends a frame, with its checksum where the device fills in none.
///
/// # Errors
/// The device has no room.
pub fn transmit(
    device: &mut dyn Device,
    header: &[u8],
    payload: [RawSlice<'_>; 2],
    offload: TxOffload,
) -> Result<(), TxFull> {
    match device.info().tx_checksum {
        true => device.tx(header, payload, offload),
        false => tx_completed(device, header, payload, offload),
    }
}

/// Sends a frame by a device that completes no checksums: the field is filled in before.
///
/// # Errors
/// The device has no room.
#[inline(never)]
pub fn tx_completed(
    device: &mut dyn Device,
    header: &[u8],
    payload: [RawSlice<'_>; 2],
    offload: TxOffload,
) -> Result<(), TxFull> {
    let rest = TxOffload::on(offload.link);
    let Some(partial) = offload.checksum else {
        return device.tx(header, payload, rest);
    };
    let mut room = [0; HEADER_MAX];
    let mut long = Vec::new();
    let completed = match room.get_mut(..header.len()) {
        Some(room) => room,
        None => {
            long.resize(header.len(), 0);
            &mut long[..]
        }
    };
    completed.copy_from_slice(header);
    partial.complete_over(completed, sum_of(payload));
    device.tx(completed, payload, rest)
}

/// The sum of bytes that others may change meanwhile: the frame is then one with a wrong checksum.
fn sum_of(payload: [RawSlice<'_>; 2]) -> Sum {
    let mut sum = Sum::ZERO;
    let mut buffer = [0; PIECE];
    for bytes in payload {
        let mut done = 0;
        while done < bytes.len() {
            let taken = bytes.sub(done, PIECE).copy_to(&mut buffer);
            sum.add_bytes(&buffer[..taken]);
            done += taken;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback;
    use slipstack_wire::{PartialChecksum, RxMeta};

    #[test]
    fn a_frame_of_any_pieces_arrives_with_its_checksum() {
        let header: Vec<u8> = (0..54).collect();
        let bytes: Vec<u8> = (0..1460u32).map(|it| (it * 7) as u8).collect();
        let partial = PartialChecksum {
            start: 34,
            offset: 16,
        };
        for (first, second) in [(0, 0), (1, 0), (3, 512), (513, 700), (0, 1460)] {
            let pieces = [&bytes[..first], &bytes[..second]];
            let mut expected = header.clone();
            partial.complete(&mut expected, pieces);
            expected.extend(pieces.concat());
            let (mut device, mut peer) = loopback::pair(1500).unwrap();
            let offload = TxOffload {
                checksum: Some(partial),
                ..TxOffload::NONE
            };
            let sent = tx_completed(&mut device, &header, pieces.map(RawSlice::of), offload);
            assert_eq!(sent, Ok(()));
            peer.rx(1, &mut |frame: &[u8], meta: RxMeta| {
                assert_eq!(frame, expected);
                assert_ne!(meta.checksum, slipstack_wire::RxChecksum::Partial);
            });
        }
    }
}
