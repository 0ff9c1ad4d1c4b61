//! Frames on their way to the device.
//!
//! The device cannot take frames while it is delivering received ones, so frames that the stack
//! sends in answer wait in a [`FrameQueue`]: headers copied, stream bytes by reference.

use slipstack_stack::{ConnId, FrameOut, Payload, TxOffload};

/// Frames that wait at most; more are lost, as on a wire.
const QUEUE_LEN_MAX: usize = 4096;

/// Payload of a waiting frame.
#[derive(Clone, Copy, Debug)]
enum QueuedPayload {
    None,
    /// In the queue's bytes, behind the header.
    Inline(usize),
    Stream {
        conn: ConnId,
        offset: u64,
        len: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    header_len: usize,
    payload: QueuedPayload,
    offload: TxOffload,
}

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub(crate) struct FrameQueue {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

impl FrameQueue {
    /// `false` when the queue is full.
    pub(crate) fn push(&mut self, frame: &FrameOut<'_>) -> bool {
        if self.entries.len() >= QUEUE_LEN_MAX {
            return false;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(frame.header);
        let payload = match frame.payload {
            Payload::None => QueuedPayload::None,
            Payload::Inline(bytes) => {
                self.bytes.extend_from_slice(bytes);
                QueuedPayload::Inline(bytes.len())
            }
            Payload::Stream { conn, offset, len } => QueuedPayload::Stream { conn, offset, len },
        };
        self.entries.push(Entry {
            start,
            header_len: frame.header.len(),
            payload,
            offload: frame.offload,
        });
        true
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Passes each waiting frame to `send`, in order, and empties the queue.
    #[inline]
    pub(crate) fn drain(&mut self, mut send: impl FnMut(&FrameOut<'_>)) {
        for entry in self.entries.drain(..) {
            let header_end = entry.start + entry.header_len;
            let payload = match entry.payload {
                QueuedPayload::None => Payload::None,
                QueuedPayload::Inline(len) => {
                    Payload::Inline(&self.bytes[header_end..header_end + len])
                }
                QueuedPayload::Stream { conn, offset, len } => {
                    Payload::Stream { conn, offset, len }
                }
            };
            send(&FrameOut {
                header: &self.bytes[entry.start..header_end],
                payload,
                offload: entry.offload,
                local: false,
            });
        }
        self.bytes.clear();
    }
}
