//! The last step of the way down.

use crate::counters::{Counter, Counters};
use crate::effects::{Effects, FrameOut};

/// Counts a frame and hands it over.
#[inline]
pub(crate) fn transmit(frame: FrameOut<'_>, counters: &mut Counters, fx: &mut impl Effects) {
    counters.bump(Counter::TxFrames);
    counters.add(
        Counter::TxBytes,
        (frame.header.len() + frame.payload.len()) as u64,
    );
    fx.transmit(frame);
}
