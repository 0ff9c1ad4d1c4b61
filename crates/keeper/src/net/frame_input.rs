//! Input of frames to the keeper's stack.

use slipstack_device::RxMeta;

/// Source of the frame that the stack is processing.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameSource {
    pub(super) now: u64,
    /// The engine that does not know it, and lives.
    pub(super) origin: Option<u16>,
    /// The frame was steered to an engine, and may be another's.
    pub(super) is_astray: bool,
    /// Number of times that it has waited.
    pub(super) waits: u8,
}

impl FrameSource {
    /// To the keeper's own slot or inbox; `origin` is the engine that did not know it.
    pub(super) fn here(now: u64, origin: Option<u16>) -> FrameSource {
        FrameSource {
            now,
            origin,
            is_astray: origin.is_some(),
            waits: 0,
        }
    }

    /// From the queue of an engine that is gone.
    pub(super) fn to_the_gone(now: u64) -> FrameSource {
        FrameSource {
            now,
            origin: None,
            is_astray: true,
            waits: 0,
        }
    }
}

/// The metadata of a frame from an inbox.
pub(super) fn local_by(link: u16) -> RxMeta {
    RxMeta {
        link,
        ..RxMeta::LOCAL
    }
}
