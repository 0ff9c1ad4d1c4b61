//! Delivery rate: a sample for every ACK, from the state that each transmission recorded when it
//! left.
//!
//! draft-ietf-ccwg-bbr 4.1 (formerly draft-cheng-iccrg-delivery-rate-estimation). C.delivered is
//! not counted: it is SND.UNA plus the SACKed bytes, so that an ACK on the fast path pays nothing.

use super::scoreboard::Newest;
use crate::time::Instant;

/// Times in a stamp are in units of 64 ns: four minutes fit.
const UNIT_SHIFT: u32 = 6;
const SECOND_NS: u64 = 1_000_000_000;
/// Bit of `in_flight`: the sender had nothing more to send.
const LIMITED: u32 = 1 << 31;

/// Delivery state at the moment a record was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Low bits of C.delivered and C.lost.
    delivered: u32,
    lost: u32,
    /// Bytes in flight with this one, and [`LIMITED`].
    in_flight: u32,
    /// From C.delivered_time and C.first_sent_time to the departure.
    since_delivered: u32,
    since_first: u32,
}

impl Stamp {
    /// Returns the stamp of a record that another stack sent: its times are unknown.
    pub fn of_elsewhere(self) -> Stamp {
        Stamp {
            since_first: u32::MAX,
            ..self
        }
    }
}

/// One ACK's measurement. Bytes, nanoseconds, bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// 0 = the interval was too short to say.
    pub rate: u64,
    pub is_app_limited: bool,
    /// C.delivered now and when the newest delivered record left.
    pub delivered: u64,
    pub prior_delivered: u64,
    /// Bytes delivered and lost since that departure, and in flight at it.
    pub delivered_since: u64,
    pub lost_since: u64,
    pub in_flight_then: u64,
    /// By this ACK.
    pub newly_delivered: u64,
    pub newly_lost: u64,
    pub rtt_ns: u64,
    /// Now.
    pub in_flight: u64,
}

/// A delivery rate, in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub bytes_per_second: u64,
    /// The program's pace was the limit, not the path.
    pub is_app_limited: bool,
}

/// State of one connection while data is in flight.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    delivered_at: u64,
    first_sent_at: u64,
    /// Wraps.
    lost: u32,
    /// C.app_limited: the samples up to this C.delivered say less than the path can do.
    limited_upto: u64,
    /// The last sample that counts.
    rate: Rate,
}

impl Default for Delivery {
    fn default() -> Delivery {
        Delivery::resume(Rate {
            bytes_per_second: 0,
            is_app_limited: true,
        })
    }
}

impl Delivery {
    /// A flight begins; before it this was the rate.
    pub fn resume(rate: Rate) -> Delivery {
        Delivery {
            delivered_at: 0,
            first_sent_at: 0,
            lost: 0,
            // Segments sent after a rest measure the program's speed, not the path's.
            limited_upto: 1,
            rate,
        }
    }

    /// Something leaves, with `in_flight` bytes before it.
    #[inline]
    pub fn on_sent(&mut self, now: Instant, len: u64, in_flight: u64, delivered: u64) -> Stamp {
        let (since_delivered, since_first) = if in_flight == 0 {
            self.delivered_at = now.0;
            self.first_sent_at = now.0;
            (0, 0)
        } else {
            (ago(now, self.delivered_at), ago(now, self.first_sent_at))
        };
        let limited = if self.limited_upto == 0 { 0 } else { LIMITED };
        Stamp {
            delivered: delivered as u32,
            lost: self.lost,
            in_flight: (in_flight + len) as u32 & !LIMITED | limited,
            since_delivered,
            since_first,
        }
    }

    /// The program has nothing more to say while the window has room.
    #[inline]
    pub fn on_app_limited(&mut self, delivered: u64, in_flight: u64) {
        self.limited_upto = (delivered + in_flight).max(1);
    }

    pub fn on_lost(&mut self, bytes: u64) {
        self.lost = self.lost.wrapping_add(bytes as u32);
    }

    /// Returns the last valid rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// An ACK delivered all that was outstanding, and nothing needs a sample; `elapsed` since the
    /// newest record left.
    #[inline]
    pub fn on_all_delivered(&mut self, delivered: u64, stamp: &Stamp, elapsed: u64) {
        if delivered > self.limited_upto {
            self.limited_upto = 0;
        }
        let ns = |units: u32| u64::from(units) << UNIT_SHIFT;
        let since = u64::from((delivered as u32).wrapping_sub(stamp.delivered));
        let interval = ns(stamp.since_first).max(elapsed + ns(stamp.since_delivered));
        // Most samples are below the known rate: no division.
        let is_faster = since * SECOND_NS > self.rate.bytes_per_second.saturating_mul(interval);
        if is_faster || stamp.in_flight & LIMITED == 0 {
            self.set_rate(since, interval, stamp.in_flight & LIMITED != 0);
        }
    }

    #[cold]
    fn set_rate(&mut self, since: u64, interval: u64, is_limited: bool) {
        if let Some(rate) = (since * SECOND_NS).checked_div(interval) {
            self.rate = Rate {
                bytes_per_second: rate,
                is_app_limited: is_limited,
            };
        }
    }

    /// An ACK delivered something; `newest` is the record among it that left last.
    pub fn on_delivered(
        &mut self,
        now: Instant,
        newest: &Newest,
        delivered: u64,
        min_rtt_ns: u64,
    ) -> Sample {
        let stamp = &newest.stamp;
        let ns = |units: u32| u64::from(units) << UNIT_SHIFT;
        let left_at = newest.sent_at;
        let then_at = left_at.saturating_sub(ns(stamp.since_delivered));
        let ack_elapsed = now.0.saturating_sub(then_at);
        let interval = ns(stamp.since_first).max(ack_elapsed);
        self.delivered_at = now.0;
        self.first_sent_at = left_at;
        if self.limited_upto != 0 && delivered > self.limited_upto {
            self.limited_upto = 0;
        }
        let since = u64::from((delivered as u32).wrapping_sub(stamp.delivered));
        let mut sample = Sample {
            rate: 0,
            is_app_limited: stamp.in_flight & LIMITED != 0,
            delivered,
            prior_delivered: delivered.saturating_sub(since),
            delivered_since: since,
            lost_since: u64::from(self.lost.wrapping_sub(stamp.lost)),
            in_flight_then: u64::from(stamp.in_flight & !LIMITED),
            ..Sample::default()
        };
        // Compressed ACKs of less than a round trip would give too high a rate; an interval that a
        // stamp cannot represent gives none.
        if interval >= min_rtt_ns && interval > 0 && stamp.since_first != u32::MAX {
            sample.rate = (u128::from(since) * 1_000_000_000 / u128::from(interval)) as u64;
            if !sample.is_app_limited || sample.rate >= self.rate.bytes_per_second {
                self.rate = Rate {
                    bytes_per_second: sample.rate,
                    is_app_limited: sample.is_app_limited,
                };
            }
        }
        sample
    }
}

/// Units from `at` to `now`; a longer pause counts as the longest that fits.
#[inline]
fn ago(now: Instant, at: u64) -> u32 {
    let units = now.0.saturating_sub(at) >> UNIT_SHIFT;
    u32::try_from(units).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn newest(sent_at: u64, stamp: Stamp) -> Newest {
        Newest {
            sent_at,
            end: 0,
            was_resent: false,
            stamp,
        }
    }

    #[test]
    fn a_steady_flow_measures_its_rate() {
        // 1000 bytes each millisecond, acknowledged 10 ms later: 1 MB/s.
        let mut delivery = Delivery::default();
        let mut stamps = alloc::collections::VecDeque::new();
        let (mut delivered, mut in_flight) = (0u64, 0u64);
        let mut last = Sample::default();
        for tick in 1..100u64 {
            let now = Instant(tick * MS);
            if tick > 10 {
                let (at, stamp) = stamps.pop_front().unwrap();
                delivered += 1000;
                in_flight -= 1000;
                last = delivery.on_delivered(now, &newest(at, stamp), delivered, 10 * MS);
            }
            stamps.push_back((now.0, delivery.on_sent(now, 1000, in_flight, delivered)));
            in_flight += 1000;
        }
        assert!((990_000..=1_010_000).contains(&last.rate), "{last:?}");
        assert!(!last.is_app_limited);
        assert_eq!(last.in_flight_then, 10_000);
    }

    #[test]
    fn an_application_limited_sample_never_lowers_the_estimate() {
        let mut delivery = Delivery {
            limited_upto: 0,
            ..Delivery::default()
        };
        let by_path = Rate {
            bytes_per_second: 1_000_000,
            is_app_limited: false,
        };
        let fast = delivery.on_sent(Instant(MS), 10_000, 0, 0);
        delivery.on_delivered(Instant(11 * MS), &newest(MS, fast), 10_000, MS);
        assert_eq!(delivery.rate(), by_path);
        delivery.on_app_limited(10_000, 0);
        let slow = delivery.on_sent(Instant(20 * MS), 100, 0, 10_000);
        let sample = delivery.on_delivered(Instant(30 * MS), &newest(20 * MS, slow), 10_100, MS);
        assert!(sample.is_app_limited && sample.rate == 10_000);
        assert_eq!(delivery.rate(), by_path);
        assert_eq!(delivery.limited_upto, 0);
    }

    #[test]
    fn acks_faster_than_the_round_trip_give_no_sample() {
        let mut delivery = Delivery::default();
        let stamp = delivery.on_sent(Instant(MS), 10_000, 0, 0);
        let sample = delivery.on_delivered(Instant(2 * MS), &newest(MS, stamp), 10_000, 5 * MS);
        assert_eq!(sample.rate, 0);
    }

    #[test]
    fn a_pause_longer_than_the_wrap_of_send_times_is_not_taken_for_a_short_one() {
        let mut delivery = Delivery::default();
        delivery.on_sent(Instant(MS), 1_000, 0, 0);
        // 2^32 units and a little later, before any timer.
        let now = MS + (1 << 38) + 2 * MS;
        let stamp = delivery.on_sent(Instant(now), 1_000, 1_000, 0);
        let sample = delivery.on_delivered(Instant(now + MS), &newest(now, stamp), 2_000, MS);
        assert!(sample.rate < 10, "{sample:?}");
    }
}
