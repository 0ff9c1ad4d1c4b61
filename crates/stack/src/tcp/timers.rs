//! The deadlines of one connection. The wheel has one entry for all of them, which is checked
//! lazily.

use crate::time::Instant;

/// The timers that share the retransmission slot, one at a time: each replaces the others (RFC 8985
/// 7.2 and 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Resend {
    /// RFC 6298.
    Timeout,
    /// RFC 8985 7: tail loss probe.
    Probe,
    /// RFC 8985 6.2 step 5: the reordering window ends.
    Reorder,
    /// RFC 9293 3.8.6.1: zero window.
    Persist,
}

impl Resend {
    /// The low two bits of a deadline store its kind; no timer resolves single nanoseconds.
    const MASK: u64 = 3;

    fn of(at: Instant) -> Resend {
        match at.0 & Self::MASK {
            0 => Resend::Timeout,
            1 => Resend::Probe,
            2 => Resend::Reorder,
            _ => Resend::Persist,
        }
    }
}

/// Which deadline is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Resend(Resend),
    Ack,
    /// Keep-alive, or the end of an orphan's FIN-WAIT-2.
    Idle,
}

const NEVER: Instant = Instant::FAR_FUTURE;

#[derive(Clone, Copy, Debug)]
pub struct Timers {
    /// Deadline whose lowest bits are a [`Resend`].
    resend_at: Instant,
    ack_at: Instant,
    idle_at: Instant,
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            resend_at: NEVER,
            ack_at: NEVER,
            idle_at: NEVER,
        }
    }
}

impl Timers {
    #[inline]
    pub fn set_resend(&mut self, kind: Resend, at: Instant) {
        self.resend_at = Instant(at.0 & !Resend::MASK | kind as u64);
    }

    #[inline]
    pub fn clear_resend(&mut self) {
        self.resend_at = NEVER;
    }

    /// The kind that is running.
    #[inline]
    pub fn resend(&self) -> Option<Resend> {
        if self.resend_at == NEVER {
            None
        } else {
            Some(Resend::of(self.resend_at))
        }
    }

    #[inline]
    pub fn set_ack(&mut self, at: Instant) {
        self.ack_at = self.ack_at.min(at);
    }

    #[inline]
    pub fn clear_ack(&mut self) {
        self.ack_at = NEVER;
    }

    pub fn set_idle(&mut self, at: Instant) {
        self.idle_at = at;
    }

    pub fn clear_idle(&mut self) {
        self.idle_at = NEVER;
    }

    /// The earliest of all.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        let at = self.resend_at.min(self.ack_at).min(self.idle_at);
        if at == NEVER { None } else { Some(at) }
    }

    /// Takes one deadline that is due.
    pub fn pop_due(&mut self, now: Instant) -> Option<Due> {
        if self.ack_at <= now {
            self.ack_at = NEVER;
            return Some(Due::Ack);
        }
        if self.resend_at.0 & !Resend::MASK <= now.0 {
            let kind = Resend::of(self.resend_at);
            self.resend_at = NEVER;
            return Some(Due::Resend(kind));
        }
        if self.idle_at <= now {
            self.idle_at = NEVER;
            return Some(Due::Idle);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_loss_timer_runs_at_a_time() {
        // RFC 8985 8.
        let mut timers = Timers::default();
        for kind in [
            Resend::Probe,
            Resend::Reorder,
            Resend::Timeout,
            Resend::Persist,
        ] {
            timers.set_resend(Resend::Timeout, Instant(4_000));
            timers.set_resend(kind, Instant(8_000));
            assert_eq!(timers.resend(), Some(kind));
            assert_eq!(timers.pop_due(Instant(7_999)), None, "what was replaced");
            assert_eq!(timers.pop_due(Instant(8_003)), Some(Due::Resend(kind)));
            assert_eq!((timers.resend(), timers.next()), (None, None));
        }
    }
}
