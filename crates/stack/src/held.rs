//! Frames that wait until their neighbour's link-layer address is known.

use alloc::vec::Vec;

use slipstack_wire::TxOffload;

use crate::counters::Counters;
use crate::effects::{Effects, FrameOut, Payload};
use crate::ids::ConnId;
use crate::network_layer::{HEADER_MAX, transmit};

/// A frame that waits for its neighbour's address.
#[derive(Debug)]
pub(crate) struct HeldFrame {
    header: [u8; HEADER_MAX],
    header_len: u8,
    payload: HeldPayload,
    offload: TxOffload,
}

#[derive(Debug)]
enum HeldPayload {
    None,
    Bytes(Vec<u8>),
    Stream { conn: ConnId, offset: u64, len: u32 },
}

impl HeldFrame {
    pub fn new(frame: &FrameOut<'_>) -> Self {
        let mut header = [0; HEADER_MAX];
        header[..frame.header.len()].copy_from_slice(frame.header);
        let payload = match frame.payload {
            Payload::None => HeldPayload::None,
            Payload::Inline(bytes) => HeldPayload::Bytes(bytes.to_vec()),
            Payload::Stream { conn, offset, len } => HeldPayload::Stream { conn, offset, len },
        };
        Self {
            header,
            header_len: frame.header.len() as u8,
            payload,
            offload: frame.offload,
        }
    }

    /// Ethernet to transport header.
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_len)]
    }

    /// Returns the bytes that follow it, unless they are a connection's.
    pub fn bytes(&self) -> &[u8] {
        match &self.payload {
            HeldPayload::Bytes(bytes) => bytes,
            HeldPayload::None | HeldPayload::Stream { .. } => &[],
        }
    }

    pub(crate) fn send(&mut self, mac: [u8; 6], counters: &mut Counters, fx: &mut impl Effects) {
        self.header[..6].copy_from_slice(&mac);
        let payload = match &self.payload {
            HeldPayload::None => Payload::None,
            HeldPayload::Bytes(bytes) => Payload::Inline(bytes),
            &HeldPayload::Stream { conn, offset, len } => Payload::Stream { conn, offset, len },
        };
        let header = &self.header[..usize::from(self.header_len)];
        transmit(
            FrameOut {
                header,
                payload,
                offload: self.offload,
                local: false,
            },
            counters,
            fx,
        );
    }
}
