//! The last step of output: the Ethernet header and the hand-over to the device.

use crate::counters::Counters;
use crate::effects::{Effects, FrameOut};

/// Counts a frame and hands it over.
#[inline]
pub(crate) fn transmit(frame: FrameOut<'_>, counters: &mut Counters, fx: &mut impl Effects) {
    let len = frame.header.len() + frame.payload.len();
    counters.count_out(frame.offload.link, len);
    fx.transmit(frame);
}
