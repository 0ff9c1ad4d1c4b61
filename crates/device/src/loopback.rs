//! Two devices joined in memory, for tests of engines without a network.
//!
//! Frames arrive as they were sent, up to 64 KiB, with partial checksums, as between two stacks on
//! one machine.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use slipstack_mem::{PrivateFd, RawSlice, RawSpace};
use slipstack_wire::{RxChecksum, RxMeta, TxOffload};

use crate::device::{Device, DeviceCounters, DeviceInfo, Rest, Sink, TxFull};
use crate::error::DeviceError;

/// Frames that wait in one direction at most.
const QUEUE_MAX: usize = 1024;
/// Longer frames are shown by their beginning first, as a packet socket does.
const WHOLE_MAX: usize = 2048;
const TSO_MAX: u32 = 65_535 - 20 - 60;

#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    meta: RxMeta,
}

impl Frame {
    fn is_fetched_by(&self, sink: &mut dyn Sink) -> bool {
        if self.bytes.len() <= WHOLE_MAX {
            return false;
        }
        let mut waiting = Waiting {
            bytes: &self.bytes,
            is_fetched: false,
        };
        sink.large(&self.bytes[..WHOLE_MAX], self.meta, &mut waiting);
        waiting.is_fetched
    }
}

/// A frame of which the beginning is known.
struct Waiting<'a> {
    bytes: &'a [u8],
    is_fetched: bool,
}

impl Rest for Waiting<'_> {
    fn frame_len(&self) -> usize {
        self.bytes.len()
    }

    fn fetch(&mut self, from: usize, into: [RawSpace<'_>; 2]) -> bool {
        let rest = self.bytes.get(from..).unwrap_or_default();
        if self.is_fetched || rest.len() != into[0].len() + into[1].len() {
            return false;
        }
        let (first, second) = rest.split_at(into[0].len());
        into[0].copy_from(first);
        into[1].copy_from(second);
        self.is_fetched = true;
        true
    }
}

/// One direction: the frames, and an eventfd that is readable while there are any.
#[derive(Debug)]
struct Lane {
    frames: Mutex<VecDeque<Frame>>,
    bell: PrivateFd,
}

impl Lane {
    fn new() -> Result<Arc<Lane>, DeviceError> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let bell = bell.map_err(|errno| DeviceError::System {
            doing: "creating an eventfd",
            source: errno.into(),
        })?;
        Ok(Arc::new(Lane {
            frames: Mutex::new(VecDeque::new()),
            bell: bell.into(),
        }))
    }

    fn frames(&self) -> MutexGuard<'_, VecDeque<Frame>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end of the pair.
#[derive(Debug)]
pub struct Loopback {
    info: DeviceInfo,
    incoming: Arc<Lane>,
    outgoing: Arc<Lane>,
    counters: DeviceCounters,
}

/// Makes two ends, each of which receives the other's frames.
pub fn pair(mtu: u16) -> Result<(Loopback, Loopback), DeviceError> {
    let (a, b) = (Lane::new()?, Lane::new()?);
    let end = |last, incoming: &Arc<Lane>, outgoing: &Arc<Lane>| Loopback {
        info: DeviceInfo {
            mac: [2, 0, 0, 0, 0, last],
            mtu,
            tx_checksum: true,
            tso_max: TSO_MAX,
            udp_segmentation: true,
        },
        incoming: Arc::clone(incoming),
        outgoing: Arc::clone(outgoing),
        counters: DeviceCounters::default(),
    };
    Ok((end(1, &a, &b), end(2, &b, &a)))
}

impl Loopback {
    /// Turns it into an end that leaves checksums to the stack.
    #[must_use]
    pub fn without_checksums(mut self) -> Loopback {
        self.info.tx_checksum = false;
        self
    }
}

impl Device for Loopback {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        for done in 0..budget {
            // The lock is not held while the frame is handled: the handler may send.
            let mut frames = self.incoming.frames();
            let Some(frame) = frames.pop_front() else {
                return done;
            };
            if frames.is_empty() {
                let _ = rustix::io::read(&self.incoming.bell, &mut [0; 8]);
            }
            drop(frames);
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += frame.bytes.len() as u64;
            if frame.is_fetched_by(sink) {
                self.counters.rx_direct += 1;
            } else {
                sink.frame(&frame.bytes, frame.meta);
            }
        }
        budget
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        let mut frames = self.outgoing.frames();
        if frames.len() >= QUEUE_MAX {
            self.counters.tx_full += 1;
            return Err(TxFull);
        }
        let bytes = gather(header, payload);
        let meta = RxMeta {
            checksum: match offload.checksum {
                Some(_) => RxChecksum::Partial,
                None => RxChecksum::Unknown,
            },
            gso: offload.gso.is_some(),
            segment: offload.gso.map_or(0, |gso| gso.mss),
            link: offload.link,
            ..RxMeta::UNKNOWN
        };
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += bytes.len() as u64;
        frames.push_back(Frame { bytes, meta });
        if frames.len() == 1 {
            let _ = rustix::io::write(&self.outgoing.bell, &1u64.to_ne_bytes());
        }
        Ok(())
    }

    fn flush(&mut self) {}

    fn poll_fd(&self) -> RawFd {
        self.incoming.bell.as_raw_fd()
    }

    fn has_rx(&self) -> bool {
        !self.incoming.frames().is_empty()
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}

/// The whole frame in one piece.
pub fn gather(header: &[u8], payload: [RawSlice<'_>; 2]) -> Vec<u8> {
    let split = header.len() + payload[0].len();
    let mut bytes = vec![0; split + payload[1].len()];
    bytes[..header.len()].copy_from_slice(header);
    payload[0].copy_to(&mut bytes[header.len()..split]);
    payload[1].copy_to(&mut bytes[split..]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(device: &mut Loopback, header: &[u8]) -> Result<(), TxFull> {
        device.tx(header, [RawSlice::EMPTY; 2], TxOffload::NONE)
    }

    #[test]
    fn frames_arrive_in_order_and_make_the_descriptor_readable() {
        let (mut a, mut b) = pair(1500).unwrap();
        assert!(!b.has_rx());
        for n in 0..3u8 {
            send(&mut a, &[n; 60]).unwrap();
        }
        assert!(b.has_rx());
        let mut seen = Vec::new();
        assert_eq!(
            b.rx(2, &mut |frame: &[u8], _: RxMeta| seen.push(frame[0])),
            2
        );
        assert_eq!(
            b.rx(9, &mut |frame: &[u8], _: RxMeta| seen.push(frame[0])),
            1
        );
        assert_eq!(seen, [0, 1, 2]);
        assert!(!b.has_rx());
        assert!(rustix::io::read(&b.incoming.bell, &mut [0; 8]).is_err());
    }

    #[test]
    fn a_full_queue_refuses_frames_and_counts_them() {
        let (mut a, _b) = pair(1500).unwrap();
        for _ in 0..QUEUE_MAX {
            send(&mut a, &[0; 60]).unwrap();
        }
        assert_eq!(send(&mut a, &[0; 60]), Err(TxFull));
        assert_eq!(a.counters().tx_full, 1);
    }
}
