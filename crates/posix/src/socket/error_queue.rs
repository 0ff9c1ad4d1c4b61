//! Local entries of a socket's error queue: datagrams that were too large before they left, buffers
//! of MSG_ZEROCOPY that are free again, times at which datagrams left.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use slipstack_mem::Lock;

use crate::ready::bits;
use crate::socket::stamping;

/// Messages that wait at most; further ones are lost, as beyond SO_RCVBUF.
const MESSAGES_MAX: usize = 1024;

/// SCM_TSTAMP_SND and SCM_TSTAMP_SCHED (linux/errqueue.h).
const STAMP_SENT: u32 = 0;
const STAMP_SCHEDULED: u32 = 1;

/// One message of the error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueuedMessage {
    /// A datagram that the path does not take and that may not be cut.
    TooLong { to: SocketAddr, mtu: u32 },
    /// The bytes of these sends were copied.
    Copied { first: u32, last: u32 },
    /// A datagram has left; `at` as the system's clock has it.
    Left { id: u32, kind: u32, at: Duration },
}

/// The messages that the program wants.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestedMessages {
    /// SO_ZEROCOPY.
    pub(crate) is_zerocopy: bool,
    /// SO_SELECT_ERR_QUEUE.
    pub(crate) is_selected: bool,
    /// SO_TIMESTAMPING.
    pub(crate) stamps: u32,
}

#[derive(Debug, Default)]
pub(crate) struct ErrorQueue {
    queue: Lock<VecDeque<QueuedMessage>>,
    has_any: AtomicBool,
    /// SO_ZEROCOPY, and the number of sends that requested it.
    is_zerocopy: AtomicBool,
    zerocopies: AtomicU32,
    /// SO_TIMESTAMPING, and how many datagrams were sent since it counts them.
    stamps: AtomicU32,
    stamped: AtomicU32,
    /// SO_SELECT_ERR_QUEUE.
    is_selected: AtomicBool,
}

impl ErrorQueue {
    pub(crate) fn set(&self, requested: RequestedMessages) {
        let RequestedMessages {
            is_zerocopy,
            is_selected,
            stamps,
        } = requested;
        self.is_zerocopy.store(is_zerocopy, Ordering::Relaxed);
        self.is_selected.store(is_selected, Ordering::Relaxed);
        let before = self.stamps.swap(stamps, Ordering::Relaxed);
        // sock_set_timestamping(): the count begins when it is switched on.
        if stamps & !before & stamping::OPT_ID != 0 {
            self.stamped.store(0, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Returns the event bits of the queue.
    #[inline]
    pub(crate) fn bits(&self) -> u32 {
        match self.has_any() {
            false => 0,
            true if self.is_selected.load(Ordering::Relaxed) => bits::ERR | bits::PRI,
            true => bits::ERR,
        }
    }

    pub(crate) fn push(&self, message: QueuedMessage) {
        let mut queue = self.queue.lock();
        // __msg_zerocopy_callback(): completions that follow each other are one.
        if let (
            Some(QueuedMessage::Copied { last, .. }),
            QueuedMessage::Copied { first, last: until },
        ) = (queue.back_mut(), message)
            && last.wrapping_add(1) == first
        {
            *last = until;
        } else if queue.len() < MESSAGES_MAX {
            queue.push_back(message);
        }
        self.has_any.store(true, Ordering::Release);
    }

    pub(crate) fn pop(&self) -> Option<QueuedMessage> {
        if !self.has_any() {
            return None;
        }
        let mut queue = self.queue.lock();
        let message = queue.pop_front();
        self.has_any.store(!queue.is_empty(), Ordering::Release);
        message
    }

    /// A send with MSG_ZEROCOPY is done. Whether there is something to read of that.
    pub(crate) fn on_zerocopy(&self) -> bool {
        if !self.is_zerocopy.load(Ordering::Relaxed) {
            return false;
        }
        let number = self.zerocopies.fetch_add(1, Ordering::Relaxed);
        self.push(QueuedMessage::Copied {
            first: number,
            last: number,
        });
        true
    }

    /// Records a sent datagram, `asked` being its control message's request, else that of the
    /// option. Returns whether there is a new entry.
    #[inline]
    pub(crate) fn on_left(&self, asked: Option<u32>, now: impl Fn() -> Duration) -> bool {
        let set = self.stamps.load(Ordering::Relaxed);
        let wanted = asked.unwrap_or(set) & stamping::TX_ALL;
        match wanted {
            0 => false,
            _ => self.stamp(set, wanted, now()),
        }
    }

    #[cold]
    fn stamp(&self, set: u32, wanted: u32, at: Duration) -> bool {
        let id = match set & stamping::OPT_ID {
            0 => 0,
            _ => self.stamped.fetch_add(1, Ordering::Relaxed),
        };
        // Without SOF_TIMESTAMPING_SOFTWARE the time itself is not reported.
        let at = if set & stamping::SOFTWARE == 0 {
            Duration::ZERO
        } else {
            at
        };
        for (bit, kind) in [
            (stamping::TX_SCHED, STAMP_SCHEDULED),
            (stamping::TX_SOFTWARE, STAMP_SENT),
        ] {
            if wanted & bit != 0 {
                self.push(QueuedMessage::Left { id, kind, at });
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_that_follow_each_other_are_one_message() {
        let queue = ErrorQueue::default();
        assert!(!queue.on_zerocopy());
        queue.is_zerocopy.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            assert!(queue.on_zerocopy());
        }
        assert_eq!(
            queue.pop(),
            Some(QueuedMessage::Copied { first: 0, last: 2 })
        );
        assert_eq!(queue.bits(), 0);
        assert!(queue.on_zerocopy());
        assert_eq!(
            queue.pop(),
            Some(QueuedMessage::Copied { first: 3, last: 3 })
        );
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn time_stamps_are_reported_only_on_request() {
        let queue = ErrorQueue::default();
        let now = || Duration::from_secs(7);
        assert!(!queue.on_left(None, now));
        let set = stamping::SOFTWARE | stamping::TX_SOFTWARE | stamping::OPT_ID;
        queue.stamps.store(set, Ordering::Relaxed);
        assert!(queue.on_left(None, now));
        assert!(!queue.on_left(Some(0), now));
        assert!(queue.on_left(Some(stamping::TX_SCHED), now));
        let left = |id, kind| QueuedMessage::Left {
            id,
            kind,
            at: Duration::from_secs(7),
        };
        assert_eq!(queue.pop(), Some(left(0, STAMP_SENT)));
        assert_eq!(queue.pop(), Some(left(1, STAMP_SCHEDULED)));
    }
}
