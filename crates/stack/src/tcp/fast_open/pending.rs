//! Connections that count against a listener's limit of Fast Opens (RFC 7413 5.1).

use alloc::collections::VecDeque;

use crate::ids::ConnId;
use crate::tcp::connection::Connection;
use crate::tcp::phase::Phase;
use crate::tcp::slab::Slab;
use crate::time::Instant;

/// Pending connections that are checked again for each SYN with data.
const LOOKS: usize = 8;

/// Time for which the place of a connection that was reset stays taken, as on Linux.
const RESET_STAYS_NS: u64 = 60_000_000_000;

/// The Fast Opens of one listener.
#[derive(Debug, Default)]
pub struct FastOpens {
    /// Connections whose data was accepted with the SYN and whose handshake may not be complete.
    pending: VecDeque<Pending>,
    /// Times until which the places of reset connections stay taken.
    reset: VecDeque<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    id: ConnId,
    /// The listener's count of offered connections with this one.
    number: u32,
}

impl FastOpens {
    /// RFC 7413 5.1: the program limits by TCP_FASTOPEN the connections whose data was accepted
    /// before the handshake was complete. Completed ones leave the list when this is called.
    pub fn has_room(&mut self, now: Instant, limit: usize, conns: &Slab<Connection>) -> bool {
        for _ in 0..LOOKS.min(self.pending.len()) {
            let Some(one) = self.pending.pop_front() else {
                break;
            };
            let conn = conns.find(one.id.index, one.id.generation);
            if conn.is_some_and(|conn| conn.phase == Phase::SynReceived) {
                self.pending.push_back(one);
            }
        }
        while self.reset.front().is_some_and(|until| *until <= now) {
            self.reset.pop_front();
        }
        self.pending.len() + self.reset.len() < limit
    }

    /// Notes a connection that was given to the program with the data of its SYN.
    pub fn push(&mut self, id: ConnId, number: u32) {
        self.pending.push_back(Pending { id, number });
    }

    /// RFC 7413 5.1: the place of a connection that is reset stays taken for a while, or SYNs with
    /// resets behind them would know no bound. One that the program has not taken yet fills its
    /// queue (Linux: reqsk_fastopen_remove). Returns whether the connection was pending here;
    /// `taken` connections have left the queue so far.
    pub fn on_reset(&mut self, now: Instant, id: ConnId, taken: u32) -> bool {
        let Some(place) = self.pending.iter().position(|one| one.id == id) else {
            return false;
        };
        let one = self.pending.remove(place);
        if one.is_some_and(|one| taken.wrapping_sub(one.number) as i32 >= 0) {
            self.reset.push_back(now.plus_nanos(RESET_STAYS_NS));
        }
        true
    }
}
