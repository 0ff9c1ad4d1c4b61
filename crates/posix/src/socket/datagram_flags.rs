//! Destinations that a datagram socket may send to.

use std::sync::atomic::{AtomicU8, Ordering};

const BROADCAST: u8 = 1;
const DIRECT: u8 = 2;

/// SO_BROADCAST and SO_DONTROUTE, which are checked for every datagram.
#[derive(Debug, Default)]
pub(crate) struct DatagramFlags(AtomicU8);

impl DatagramFlags {
    pub(crate) fn set(&self, may_broadcast: bool, is_direct: bool) {
        let datagram_flags = (BROADCAST * u8::from(may_broadcast)) | (DIRECT * u8::from(is_direct));
        self.0.store(datagram_flags, Ordering::Relaxed);
    }

    pub(crate) fn may_broadcast(&self) -> bool {
        self.0.load(Ordering::Relaxed) & BROADCAST != 0
    }

    /// Returns whether datagrams go to stations on the link alone (SO_DONTROUTE).
    pub(crate) fn is_direct(&self) -> bool {
        self.0.load(Ordering::Relaxed) & DIRECT != 0
    }
}
