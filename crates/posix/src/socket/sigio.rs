//! O_ASYNC: events of a socket are signalled to its owner by SIGIO, or by the signal of F_SETSIG
//! with the kind of event.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use crate::kernel::Kernel;
use crate::kernel::Owner;

/// Events as bits: 1 << `si_code` (POLL_IN and so on).
pub(crate) mod news {
    pub(crate) const IN: u32 = 1 << 1;
    pub(crate) const OUT: u32 = 1 << 2;
    pub(crate) const ERR: u32 = 1 << 4;
    pub(crate) const HUP: u32 = 1 << 6;
}

/// The order of the kernel, which signals the end of a stream before readability.
const ORDER: [u32; 4] = [news::OUT, news::ERR, news::HUP, news::IN];

/// The events for an owner.
#[derive(Debug, Default)]
pub(crate) struct SigIo {
    is_on: AtomicBool,
    /// F_SETSIG; 0 = SIGIO without more.
    signal: AtomicI32,
    /// The number that O_ASYNC was set by.
    fd: AtomicI32,
    pending: AtomicU32,
}

impl SigIo {
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, fd: i32, is_on: bool) {
        self.fd.store(fd, Ordering::Relaxed);
        self.pending.store(0, Ordering::Relaxed);
        self.is_on.store(is_on, Ordering::Release);
    }

    pub(crate) fn signal(&self) -> i32 {
        self.signal.load(Ordering::Relaxed)
    }

    pub(crate) fn set_signal(&self, signal: i32) {
        self.signal.store(signal, Ordering::Relaxed);
    }

    pub(crate) fn take_over(&self, from: &SigIo) {
        self.set_signal(from.signal());
        self.set(from.fd.load(Ordering::Relaxed), from.is_on());
    }

    #[inline]
    pub(crate) fn note(&self, what: u32) {
        if what != 0 && self.is_on() {
            self.pending.fetch_or(what, Ordering::AcqRel);
        }
    }

    /// Tells the owner.
    pub(crate) fn tell(&self, kernel: &dyn Kernel, owner: Owner) {
        let pending = self.pending.swap(0, Ordering::AcqRel);
        let fd = self.fd.load(Ordering::Relaxed);
        for bit in ORDER.into_iter().filter(|bit| pending & bit != 0) {
            let code = bit.trailing_zeros().cast_signed();
            kernel.signal_io(owner, self.signal(), fd, code);
        }
    }
}
