//! A connection's readiness and its changes: tcp_poll() and the wake-ups that Linux gives.

use std::sync::atomic::Ordering;

use crate::attachment::seen::Seen;
use crate::ready::bits;
use crate::socket::Edges;
use crate::socket::moved::ConnectionPlace;
use crate::socket::sigio::news;
use crate::socket::stream::{SHUT_READ, SHUT_WRITE, Stream};

impl Stream {
    /// tcp_poll().
    pub(crate) fn readiness(&self) -> u32 {
        let here = self.here();
        let ready = self.readiness_at(here);
        match self.is_here(here) {
            true => ready,
            false => self.readiness(),
        }
    }

    fn readiness_at(&self, here: ConnectionPlace<'_>) -> u32 {
        let seen = self.seen_at(here);
        let shut = self.shut.load(Ordering::Relaxed);
        let mut ready = 0;
        if seen.is_error() {
            ready |= bits::ERR;
        }
        let is_over = seen.is_closed() || seen.is_hup() || self.is_failed();
        if is_over {
            if self.is_ended() {
                let has_error = self.pending_error.load(Ordering::Relaxed) != 0;
                let is_shut = shut & SHUT_READ != 0;
                return bits::HUP
                    | bits::OUT
                    | if has_error { bits::ERR } else { 0 }
                    | if is_shut { bits::IN | bits::RDHUP } else { 0 };
            }
            return ready | bits::HUP | bits::OUT | bits::IN | bits::RDHUP;
        }
        if seen.is_error() {
            return ready | bits::HUP | bits::OUT | bits::IN | bits::RDHUP;
        }
        if !seen.is_established() {
            let is_ready = self.takes_opening(here, seen);
            return ready | if is_ready { bits::OUT } else { 0 };
        }
        if seen.is_fin() || shut & SHUT_READ != 0 {
            ready |= bits::IN | bits::RDHUP;
        }
        if (seen.is_fin() || shut & SHUT_READ != 0) && shut & SHUT_WRITE != 0 {
            ready |= bits::HUP;
        }
        if ready & bits::IN == 0 && here.program().is_readable(here.sock()) && self.has_enough(here)
        {
            ready |= bits::IN;
        }
        if self.has_urgent(here) {
            ready |= bits::PRI;
        }
        if shut & SHUT_WRITE != 0 || self.has_space(here) {
            ready |= bits::OUT;
        }
        ready
    }

    /// tcp_epollin_ready().
    ///
    /// DEVIATION(Linux): SO_RCVLOWAT does not make the receive buffer larger; half of it is always
    /// enough.
    #[inline]
    fn has_enough(&self, here: ConnectionPlace<'_>) -> bool {
        let (program, sock) = (here.program(), here.sock());
        let low_water = self.low_water();
        low_water <= 1 || program.rx_available(sock) >= low_water.min(program.rx_limit(sock) / 2)
    }

    /// sk_stream_is_writeable(). If it is not, the next room is news.
    fn has_space(&self, here: ConnectionPlace<'_>) -> bool {
        if self.is_writable(here) {
            return true;
        }
        self.wants_space.store(true, Ordering::SeqCst);
        self.is_writable(here)
    }

    /// Returns, after a send that found too little room, whether there is enough by now and no
    /// event was raised.
    pub(crate) fn has_room_again(&self) -> bool {
        self.has_space(self.here()) && self.wants_space.swap(false, Ordering::SeqCst)
    }

    /// Returns the events since the last time, as epoll bits: Linux's wake-ups.
    pub(crate) fn edges(&self) -> Edges {
        let here = self.here();
        let seen = self.seen_at(here);
        if (seen.is_over() || !seen.is_connected()) && !self.is_here(here) {
            return self.edges();
        }
        let mut edges = 0;
        let now = u64::from(seen.bits());
        let before = self.told_seen.swap(now, Ordering::AcqRel);
        if before != now {
            if self.wants_space.load(Ordering::SeqCst) && self.is_writable(here) {
                self.wants_space.store(false, Ordering::SeqCst);
            }
            // Connected, FIN, reset: tcp's sk_state_change wakes for everything that holds.
            return Edges {
                bits: self.readiness() | bits::IN | bits::OUT,
                news: self.news(Seen::of_bits(now & !before)),
            };
        }
        // An event without a change of state is received data, or room that a thread waited for.
        if here.program().rx_available(here.sock()) > 0 {
            edges |= bits::IN;
        }
        if self.is_urgent_news(here) {
            edges |= bits::IN | bits::PRI;
        }
        if self.wants_space.load(Ordering::SeqCst) && self.is_writable(here) {
            self.wants_space.store(false, Ordering::SeqCst);
            edges |= bits::OUT;
        }
        Edges::of(edges)
    }

    /// Returns an owner's news of a change of state: tcp_reset(), tcp_fin(),
    /// tcp_rcv_synsent_state_process().
    fn news(&self, new: Seen) -> u32 {
        if new.is_error() {
            return news::ERR;
        }
        let here = self.here();
        let has_text = here.program().rx_available(here.sock()) > 0;
        let when = |is: bool, what: u32| if is { what } else { 0 };
        when(new.is_connected(), news::OUT)
            | when(new.is_fin() || has_text, news::IN)
            | when(new.is_hup(), news::HUP)
    }
}
