//! Checks of a wait for its condition.

/// The way in which a look treats the kernel's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Ask the kernel: a system call.
    Due,
    /// As `Due`, but the spin that follows asks within 50 µs: where the kernel's part has been
    /// quiet it can wait until then.
    Soon,
    /// Device that was asked not long ago, or that the sleep to come asks.
    Later,
    /// The sleep that just ended found no event.
    Nothing,
}

/// One check of the kernel's part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) kernel: Ask,
    /// The clock, read before it.
    pub(crate) now_ns: u64,
}

impl Look {
    /// A check that includes the kernel's part.
    pub(crate) fn due(now_ns: u64) -> Look {
        let kernel = Ask::Due;
        Look { kernel, now_ns }
    }

    pub(crate) fn is_due(self) -> bool {
        matches!(self.kernel, Ask::Due | Ask::Soon)
    }
}
