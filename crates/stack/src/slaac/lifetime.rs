//! Preferred and valid lifetimes of an address (RFC 4862 5.5.3 (e), 5.5.4).

use core::time::Duration;

use crate::time::Instant;

/// RFC 4861 4.6.2: all ones are for ever.
const FOR_EVER_S: u32 = u32::MAX;
const TWO_HOURS: Duration = Duration::from_secs(7200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetimes {
    pub preferred_until: Instant,
    pub valid_until: Instant,
}

impl Lifetimes {
    pub const FOR_EVER: Lifetimes = Lifetimes {
        preferred_until: Instant::FAR_FUTURE,
        valid_until: Instant::FAR_FUTURE,
    };

    pub const fn new(preferred_until: Instant, valid_until: Instant) -> Lifetimes {
        Lifetimes {
            preferred_until,
            valid_until,
        }
    }

    /// RFC 4862 5.5.3 (e): a single forged advertisement cannot end an address.
    pub fn renew(&mut self, now: Instant, preferred_s: u32, valid_s: u32) {
        let stated = after_s(now, valid_s);
        let in_two_hours = now + TWO_HOURS;
        // (1) longer than two hours, or than the remaining time.
        if stated > in_two_hours || stated > self.valid_until {
            self.valid_until = stated;
        // (3) a long life becomes two hours; (2) a short one stays as it is.
        } else if self.valid_until > in_two_hours {
            self.valid_until = in_two_hours;
        }
        self.preferred_until = after_s(now, preferred_s).min(self.valid_until);
    }
}

pub(super) fn after_s(now: Instant, seconds: u32) -> Instant {
    match seconds {
        FOR_EVER_S => Instant::FAR_FUTURE,
        seconds => now + Duration::from_secs(seconds.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_not_ended_by_one_advertisement() {
        // RFC 4862 5.5.3.
        const HOUR: u32 = 3600;
        let now = Instant::from_millis(1_000_000);
        // Remaining lifetime, advertised lifetime, resulting lifetime.
        let table = [
            (HOUR, 4 * HOUR, 4 * HOUR),
            (HOUR, HOUR + 1, HOUR + 1),
            (HOUR, 60, HOUR),
            (HOUR, 0, HOUR),
            (5 * HOUR, 3 * HOUR, 3 * HOUR),
            (5 * HOUR, 0, 2 * HOUR),
            (FOR_EVER_S, 0, 2 * HOUR),
            (HOUR, FOR_EVER_S, FOR_EVER_S),
        ];
        for (left, stated, want) in table {
            let mut lifetimes = Lifetimes::new(after_s(now, left), after_s(now, left));
            lifetimes.renew(now, 0, stated);
            assert_eq!(lifetimes.valid_until, after_s(now, want), "{left} {stated}");
            // The preferred lifetime follows without such a rule.
            assert_eq!(lifetimes.preferred_until, now);
        }
    }
}
