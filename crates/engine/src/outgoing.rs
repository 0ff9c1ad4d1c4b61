//! Output of the stack's frames: to the device, or back to our own address.

use slipstack_device::{Device, tx_completed};
use slipstack_mem::RawSlice;
use slipstack_stack::{FrameOut, Payload};

use crate::client::Client;
use crate::environment::Environment;
use crate::frames::FrameQueue;
use crate::local::Taken;
use crate::owners::Owners;
use crate::stats::EngineCounters;

/// State needed to send a frame: the owner of its bytes and their place.
pub(crate) struct Outgoing<'a> {
    clients: &'a [Option<Client>],
    conns: &'a Owners,
    counters: &'a mut EngineCounters,
    has_tx_checksum: bool,
}

impl Environment {
    fn outgoing(&mut self) -> (Outgoing<'_>, &mut FrameQueue) {
        let out = Outgoing {
            clients: &self.clients,
            conns: &self.conns,
            counters: &mut self.counters,
            has_tx_checksum: self.has_tx_checksum,
        };
        (out, &mut self.queue)
    }

    /// Sends the queued frames.
    #[inline]
    pub(crate) fn drain_queue(&mut self, device: &mut dyn Device) {
        if !self.queue.is_empty() {
            self.drain_waiting(device);
        }
    }

    fn drain_waiting(&mut self, device: &mut dyn Device) {
        let (mut out, queue) = self.outgoing();
        queue.drain(|frame| out.send(device, frame));
    }

    /// Hands a frame to the device.
    #[inline]
    pub(crate) fn send(&mut self, device: &mut dyn Device, frame: &FrameOut<'_>) {
        self.outgoing().0.send(device, frame);
    }

    /// Copies header and payload into one piece.
    pub(crate) fn assemble(&mut self, frame: &FrameOut<'_>, out: &mut Vec<u8>) -> bool {
        self.outgoing().0.assemble(frame, out)
    }

    /// Takes a frame whose destination is our own address.
    pub(crate) fn send_local(&mut self, frame: &FrameOut<'_>) {
        let taken = match self.post_stream(frame) {
            Some(taken) => taken,
            None => {
                let mut bytes = self.local.spare();
                if !self.assemble(frame, &mut bytes) {
                    self.counters.tx_stale += 1;
                    self.local.recycle(bytes);
                    return;
                }
                self.local.take(frame.offload.link, bytes)
            }
        };
        self.counters.local_posted += taken.posted;
        self.counters.local_lost += taken.lost;
    }

    /// Puts a segment into another engine's inbox from where it lies; `None`: it must be assembled.
    fn post_stream(&mut self, frame: &FrameOut<'_>) -> Option<Taken> {
        if !matches!(frame.payload, Payload::Stream { .. }) {
            return None;
        }
        let out = Outgoing {
            clients: &self.clients,
            conns: &self.conns,
            counters: &mut self.counters,
            has_tx_checksum: self.has_tx_checksum,
        };
        let payload = out.gather(frame.payload)?;
        self.local
            .take_stream(frame.offload.link, frame.header, payload)
    }
}

impl Outgoing<'_> {
    /// Returns the payload's bytes, or `None` if they are gone.
    #[inline(always)]
    fn gather<'a>(&'a self, payload: Payload<'a>) -> Option<[RawSlice<'a>; 2]> {
        match payload {
            Payload::None => Some([RawSlice::EMPTY; 2]),
            Payload::Inline(bytes) => Some([RawSlice::of(bytes), RawSlice::EMPTY]),
            Payload::Stream { conn, offset, len } => {
                let owner = self.conns.find(conn.index, conn.generation)?;
                let client = self.clients.get(owner.client.0 as usize)?.as_ref()?;
                let socket = client.socket(owner.sock)?;
                let slices = socket
                    .send
                    .gather(&client.end, owner.sock, offset, len as usize);
                (slices[0].len() + slices[1].len() == len as usize).then_some(slices)
            }
        }
    }

    /// One call for each frame: with one more caller the compiler made two of it.
    #[inline(always)]
    fn send(&mut self, device: &mut dyn Device, frame: &FrameOut<'_>) {
        let Some(payload) = self.gather(frame.payload) else {
            self.counters.tx_stale += 1;
            return;
        };
        let is_left = frame.offload.checksum.is_none() || self.has_tx_checksum;
        let tx = |device: &mut dyn Device| match is_left {
            true => device.tx(frame.header, payload, frame.offload),
            false => tx_completed(device, frame.header, payload, frame.offload),
        };
        let mut taken = tx(device);
        if taken.is_err() {
            device.flush();
            taken = tx(device);
        }
        match taken {
            Ok(()) => self.counters.tx_frames += 1,
            Err(_) => self.counters.tx_full += 1,
        }
    }

    fn assemble(&self, frame: &FrameOut<'_>, out: &mut Vec<u8>) -> bool {
        let Some(payload) = self.gather(frame.payload) else {
            return false;
        };
        out.clear();
        out.extend_from_slice(frame.header);
        for piece in payload {
            let start = out.len();
            out.resize(start + piece.len(), 0);
            piece.copy_to(&mut out[start..]);
        }
        true
    }
}
