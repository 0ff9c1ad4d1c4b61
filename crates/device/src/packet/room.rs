//! The share of the kernel's queue that datagrams may have.
//!
//! The send buffer of a packet socket is large, for the segments of TCP, and more of its frames may
//! wait for a slow link than the link's queueing discipline keeps. The kernel lets a UDP socket
//! have `net.core.wmem_default` bytes there; the datagrams of an engine share as much, and the
//! others wait in their sockets.

/// Kernel memory that datagrams may fill (`net.core.wmem_default`).
const LIMIT: u64 = 212_992;
/// The largest such share, on a link that empties its queue between two looks.
const LIMIT_MAX: u64 = 4 << 20;
/// A queue that is empty so soon after it was full is too short.
const FAST_NS: u64 = 1_000_000;
/// A queue that is full for longer belongs to a slow link.
const SLOW_NS: u64 = 4_000_000;

/// State of the queue at a look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub now_ns: u64,
    /// Cost of the datagrams since the last look.
    pub taken: u64,
    /// Cost of all frames so far.
    pub sent: u64,
    /// Kernel memory that the socket's frames fill.
    pub queued: u64,
}

/// See the [module documentation](self).
#[derive(Debug)]
pub(super) struct DatagramRoom {
    limit: u64,
    /// [`Look::queued`] and [`Look::sent`] of the last look.
    queued: u64,
    sent: u64,
    /// The part of `queued` that is datagrams': frames leave in order, so those that have left are
    /// taken for a fair sample.
    datagrams: u64,
    /// Time of the look at which the limit was reached.
    full_since: Option<u64>,
}

impl DatagramRoom {
    pub(super) const NEW: DatagramRoom = DatagramRoom {
        limit: LIMIT,
        queued: 0,
        sent: 0,
        datagrams: 0,
        full_since: None,
    };

    /// Returns the cost of the datagrams that may follow. After the limit was reached there is none
    /// until half of it is free, as on the kernel.
    pub(super) fn look(&mut self, look: Look) -> u64 {
        let known = self.queued + look.sent.saturating_sub(self.sent);
        let datagrams = (self.datagrams + look.taken).min(known);
        // Both factors are at most the size of a send buffer.
        let share = (datagrams * look.queued).checked_div(known);
        self.datagrams = share.unwrap_or(0);
        (self.queued, self.sent) = (look.queued, look.sent);
        self.adapt(look.now_ns);
        let resume = match self.full_since {
            Some(_) => self.limit / 2,
            None => self.limit - 1,
        };
        if self.datagrams > resume {
            self.full_since.get_or_insert(look.now_ns);
            return 0;
        }
        self.full_since = None;
        self.limit - self.datagrams
    }

    fn adapt(&mut self, now_ns: u64) {
        let Some(since) = self.full_since else {
            return;
        };
        let elapsed = now_ns.saturating_sub(since);
        if self.queued == 0 && elapsed < FAST_NS {
            self.limit = (2 * self.limit).min(LIMIT_MAX);
        } else if self.queued > 0 && elapsed > SLOW_NS {
            self.limit = LIMIT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(now_ns: u64, taken: u64, sent: u64, queued: u64) -> Look {
        Look {
            now_ns,
            taken,
            sent,
            queued,
        }
    }

    #[test]
    fn datagrams_wait_at_the_limit_until_half_of_it_is_free() {
        let mut room = DatagramRoom::NEW;
        assert_eq!(room.look(look(0, 0, 0, 0)), LIMIT);
        assert_eq!(room.look(look(1, LIMIT, LIMIT, LIMIT)), 0);
        assert_eq!(room.look(look(2, 0, LIMIT, LIMIT / 2 + 8)), 0);
        assert_eq!(room.look(look(3, 0, LIMIT, LIMIT / 2)), LIMIT / 2);
        assert_eq!(room.look(look(4, 0, LIMIT, 0)), LIMIT);
    }

    #[test]
    fn frames_of_connections_hold_up_no_datagrams() {
        let mut room = DatagramRoom::NEW;
        // A queue that connections keep full.
        let mut sent = 10 * LIMIT;
        assert_eq!(room.look(look(0, 0, sent, sent)), LIMIT);
        sent += LIMIT;
        assert_eq!(room.look(look(1, LIMIT, sent, 11 * LIMIT)), 0);
        for now in 2..30 {
            sent += LIMIT;
            if room.look(look(now, 0, sent, 11 * LIMIT)) > 0 {
                return;
            }
        }
        panic!("{room:?}");
    }

    #[test]
    fn a_queue_that_is_too_short_for_its_link_becomes_longer() {
        let mut room = DatagramRoom::NEW;
        room.look(look(0, LIMIT, LIMIT, LIMIT));
        assert_eq!(room.look(look(FAST_NS - 1, 0, LIMIT, 0)), 2 * LIMIT);
        assert_eq!(room.look(look(FAST_NS, 2 * LIMIT, 3 * LIMIT, 2 * LIMIT)), 0);
        // It is empty only later.
        assert_eq!(room.look(look(3 * FAST_NS, 0, 3 * LIMIT, 0)), 2 * LIMIT);
    }

    #[test]
    fn a_link_that_becomes_slow_has_the_usual_queue() {
        let mut room = DatagramRoom::NEW;
        room.look(look(0, LIMIT, LIMIT, LIMIT));
        room.look(look(1, 0, LIMIT, 0));
        room.look(look(2, 2 * LIMIT, 3 * LIMIT, 2 * LIMIT));
        assert_eq!(room.look(look(3 + SLOW_NS, 0, 3 * LIMIT, LIMIT)), 0);
        assert_eq!(room.look(look(4 + SLOW_NS, 0, 3 * LIMIT, 0)), LIMIT);
    }
}
