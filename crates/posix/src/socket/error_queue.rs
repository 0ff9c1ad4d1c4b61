//! Local entries of a socket's error queue: datagrams that were too large before they left, buffers
//! of MSG_ZEROCOPY that are free again, times at which data left and was acknowledged.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use slipstack_mem::Lock;

use crate::ready::bits;
use crate::socket::stamping;

/// Messages that wait at most; further ones are lost, as beyond SO_RCVBUF.
const MESSAGES_MAX: usize = 1024;

/// SCM_TSTAMP_SND, SCM_TSTAMP_SCHED and SCM_TSTAMP_ACK (linux/errqueue.h).
const STAMP_SENT: u32 = 0;
const STAMP_SCHEDULED: u32 = 1;
const STAMP_ACKED: u32 = 2;

/// One message of the error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueuedMessage {
    /// A datagram that the path does not take and that may not be cut.
    TooLong { to: SocketAddr, mtu: u32 },
    /// The bytes of these sends were copied.
    Copied { first: u32, last: u32 },
    /// Data has left or was acknowledged; `at` as the system's clock has it.
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
    /// Bytes of a connection that count for SOF_TIMESTAMPING_OPT_ID although they are written.
    pub(crate) queued: u32,
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
    /// Bytes written to a connection since it stamps, and their number at which the count begins.
    written: AtomicU32,
    begin: AtomicU32,
    /// Ends of what is stamped once it is acknowledged, in bytes written, and its number.
    acks: Lock<VecDeque<(u32, u32)>>,
    awaits_acks: AtomicBool,
    /// SO_SELECT_ERR_QUEUE.
    is_selected: AtomicBool,
}

impl ErrorQueue {
    pub(crate) fn set(&self, requested: RequestedMessages) {
        let RequestedMessages {
            is_zerocopy,
            is_selected,
            stamps,
            queued,
        } = requested;
        self.is_zerocopy.store(is_zerocopy, Ordering::Relaxed);
        self.is_selected.store(is_selected, Ordering::Relaxed);
        let before = self.stamps.swap(stamps, Ordering::Relaxed);
        // sock_set_timestamping(): the count begins when it is switched on.
        if stamps & !before & stamping::OPT_ID != 0 {
            self.stamped.store(0, Ordering::Relaxed);
            let written = self.written.load(Ordering::Relaxed);
            self.begin
                .store(written.wrapping_sub(queued), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Whether a stamp waits for an acknowledgement.
    #[inline]
    pub(crate) fn awaits_acks(&self) -> bool {
        self.awaits_acks.load(Ordering::Relaxed)
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
        self.push_stamps(set, wanted, id, at);
        true
    }

    /// Records bytes written to a connection: [`ErrorQueue::on_left`] of a stream.
    #[inline]
    pub(crate) fn on_written(
        &self,
        count: usize,
        asked: Option<u32>,
        now: impl Fn() -> Duration,
    ) -> bool {
        match self.stamps.load(Ordering::Relaxed) {
            0 => false,
            set => self.stamp_bytes(set, count, asked, now()),
        }
    }

    /// tcp_tx_timestamp(): the number is that of the last byte.
    #[cold]
    fn stamp_bytes(&self, set: u32, count: usize, asked: Option<u32>, at: Duration) -> bool {
        let count = count as u32;
        let written = self
            .written
            .fetch_add(count, Ordering::Relaxed)
            .wrapping_add(count);
        let wanted = asked.unwrap_or(set) & stamping::TX_RECORD;
        if count == 0 || wanted & (stamping::TX_ALL | stamping::TX_ACK) == 0 {
            return false;
        }
        let id = match set & stamping::OPT_ID {
            0 => 0,
            _ => written
                .wrapping_sub(self.begin.load(Ordering::Relaxed))
                .wrapping_sub(1),
        };
        if wanted & stamping::TX_ACK != 0 {
            let mut acks = self.acks.lock();
            if acks.len() < MESSAGES_MAX {
                acks.push_back((written, id));
                self.awaits_acks.store(true, Ordering::Relaxed);
            }
        }
        self.push_stamps(set, wanted, id, at);
        // The notification settles what has been acknowledged already, and asks for the rest.
        true
    }

    /// Stamps what is acknowledged, while `queued` bytes are not. Returns whether there is a new
    /// entry.
    pub(crate) fn settle(&self, queued: usize) -> bool {
        let mut acks = self.acks.lock();
        let acked = self
            .written
            .load(Ordering::Relaxed)
            .wrapping_sub(queued as u32);
        let set = self.stamps.load(Ordering::Relaxed);
        let mut has_new = false;
        while let Some(&(end, id)) = acks.front()
            && acked.wrapping_sub(end) < 1 << 31
        {
            acks.pop_front();
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let at = reported(set, now.unwrap_or_default());
            let kind = STAMP_ACKED;
            self.push(QueuedMessage::Left { id, kind, at });
            has_new = true;
        }
        self.awaits_acks.store(!acks.is_empty(), Ordering::Relaxed);
        has_new
    }

    fn push_stamps(&self, set: u32, wanted: u32, id: u32, at: Duration) {
        let at = reported(set, at);
        for (bit, kind) in [
            (stamping::TX_SCHED, STAMP_SCHEDULED),
            (stamping::TX_SOFTWARE, STAMP_SENT),
        ] {
            if wanted & bit != 0 {
                self.push(QueuedMessage::Left { id, kind, at });
            }
        }
    }
}

/// Without SOF_TIMESTAMPING_SOFTWARE the time itself is not reported.
fn reported(set: u32, at: Duration) -> Duration {
    match set & stamping::SOFTWARE {
        0 => Duration::ZERO,
        _ => at,
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
    fn bytes_are_stamped_with_the_number_of_the_last_one_and_again_when_acknowledged() {
        let queue = ErrorQueue::default();
        let now = || Duration::from_secs(7);
        queue.set(RequestedMessages {
            stamps: stamping::TX_ACK | stamping::TX_SOFTWARE | stamping::OPT_ID,
            queued: 5,
            ..RequestedMessages::default()
        });
        assert!(queue.on_written(10, None, now));
        assert!(queue.awaits_acks());
        let at = Duration::ZERO;
        let left = |id, kind| Some(QueuedMessage::Left { id, kind, at });
        assert_eq!(queue.pop(), left(14, STAMP_SENT));
        assert!(!queue.settle(1));
        assert!(queue.settle(0) && !queue.awaits_acks());
        assert_eq!(queue.pop(), left(14, STAMP_ACKED));
    }

    #[test]
    fn tcp_timestamps_are_reported_only_on_request() {
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
