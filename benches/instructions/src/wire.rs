//! The cheapest possible device: a few frames in memory that both ends share, so that the count is
//! that of the stack and not of the device.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slipstack_device::{Device, DeviceInfo, RxChecksum, RxMeta, Sink, TxFull, TxOffload};
use slipstack_mem::RawSlice;

const FRAMES: usize = 16;
const FRAME_BYTES: usize = 2048;

struct Lane {
    frames: [[u8; FRAME_BYTES]; FRAMES],
    lens: [usize; FRAMES],
    head: usize,
    tail: usize,
}

impl Lane {
    fn new() -> Arc<Mutex<Lane>> {
        Arc::new(Mutex::new(Lane {
            frames: [[0; FRAME_BYTES]; FRAMES],
            lens: [0; FRAMES],
            head: 0,
            tail: 0,
        }))
    }
}

/// One end of the wire.
pub struct Wire {
    last_mac_byte: u8,
    incoming: Arc<Mutex<Lane>>,
    outgoing: Arc<Mutex<Lane>>,
    buffer: [u8; FRAME_BYTES],
}

pub fn pair() -> (Wire, Wire) {
    let (a, b) = (Lane::new(), Lane::new());
    let end = |last_mac_byte, incoming: &Arc<Mutex<Lane>>, outgoing: &Arc<Mutex<Lane>>| Wire {
        last_mac_byte,
        incoming: Arc::clone(incoming),
        outgoing: Arc::clone(outgoing),
        buffer: [0; FRAME_BYTES],
    };
    (end(1, &a, &b), end(2, &b, &a))
}

fn lock(lane: &Mutex<Lane>) -> MutexGuard<'_, Lane> {
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device for Wire {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            mac: [2, 0, 0, 0, 0, self.last_mac_byte],
            mtu: 1500,
            tx_checksum: true,
            tso_max: 0,
            udp_segmentation: false,
        }
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let meta = RxMeta {
            checksum: RxChecksum::Partial,
            ..RxMeta::UNKNOWN
        };
        for done in 0..budget {
            let mut lane = lock(&self.incoming);
            if lane.head == lane.tail {
                return done;
            }
            let at = lane.tail % FRAMES;
            let len = lane.lens[at];
            self.buffer[..len].copy_from_slice(&lane.frames[at][..len]);
            lane.tail += 1;
            drop(lane);
            sink.frame(&self.buffer[..len], meta);
        }
        budget
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        _offload: TxOffload,
    ) -> Result<(), TxFull> {
        let mut lane = lock(&self.outgoing);
        let len = header.len() + payload[0].len() + payload[1].len();
        if lane.head - lane.tail == FRAMES || len > FRAME_BYTES {
            return Err(TxFull);
        }
        let at = lane.head % FRAMES;
        let frame = &mut lane.frames[at];
        frame[..header.len()].copy_from_slice(header);
        let split = header.len() + payload[0].len();
        payload[0].copy_to(&mut frame[header.len()..split]);
        payload[1].copy_to(&mut frame[split..len]);
        lane.lens[at] = len;
        lane.head += 1;
        Ok(())
    }

    fn flush(&mut self) {}

    fn poll_fd(&self) -> RawFd {
        -1
    }

    fn has_rx(&self) -> bool {
        let lane = lock(&self.incoming);
        lane.head != lane.tail
    }
}
