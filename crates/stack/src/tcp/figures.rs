//! Counters of a connection: the fields of TCP_INFO that are not state.
//!
//! The figures are kept beside the data in flight. When the connection is idle, the time it was
//! busy is kept in the connection block, and the rest in a separate allocation, if there is any:
//! most connections never see loss, reordering, marks or closed windows. The findings of loss
//! detection about the path are kept with it.

use slipstack_wire::user_timeout::UserTimeout;

use super::bounds::Bounds;
use super::delivery::Rate;
use super::mtu_search::search::Search;
use super::rack::Rack;
use super::segment::Segment;
use super::undo::Undo;
use crate::time::Instant;

/// The reason that holds the sender back (Linux: tcp_chrono).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pace {
    /// Nothing is outstanding.
    #[default]
    Idle,
    /// Network and congestion window.
    Busy,
    /// The peer's window.
    Window,
    /// The send buffer.
    Buffer,
}

/// Segments as TCP_INFO counts them; a frame of several counts for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    pub total_in: u32,
    pub total_out: u32,
    /// Segments received with payload.
    pub data_in: u32,
    pub data_out: u32,
}

impl Segments {
    #[inline(always)]
    pub fn on_sent(&mut self, len: u32, mss: u16) {
        if len > u32::from(mss) {
            return self.on_super_frame(len, mss);
        }
        self.total_out = self.total_out.wrapping_add(1);
        self.data_out = self.data_out.wrapping_add(u32::from(len != 0));
    }

    #[cold]
    fn on_super_frame(&mut self, len: u32, mss: u16) {
        let count = len.div_ceil(u32::from(mss).max(1));
        self.total_out = self.total_out.wrapping_add(count);
        self.data_out = self.data_out.wrapping_add(count);
    }

    #[inline(always)]
    pub fn on_received(&mut self, segment: &Segment<'_>, mss: u16) {
        self.total_in = self.total_in.wrapping_add(1);
        if segment.text_len() > 0 {
            self.data_in = self.data_in.wrapping_add(1);
            if segment.is_gso {
                self.on_merged(segment.text_len() as u32, mss);
            }
        }
    }

    /// Notes followers with payload, each in a frame of its own.
    pub fn on_followers(&mut self, count: u32) {
        self.total_in = self.total_in.wrapping_add(count);
        self.data_in = self.data_in.wrapping_add(count);
    }

    /// Counts segments that the device joined without their number: as if they had been full.
    #[cold]
    fn on_merged(&mut self, len: u32, mss: u16) {
        let others = len.div_ceil(u32::from(mss).max(1)).saturating_sub(1);
        self.total_in = self.total_in.wrapping_add(others);
        self.data_in = self.data_in.wrapping_add(others);
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Nanoseconds at each pace.
    spent: [u64; 4],
    since: u64,
    pace: Pace,
    /// Segments that D-SACKs report, those of them that had been retransmitted, reorderings, and
    /// segments that the peer reported as marked.
    pub dsacks: u32,
    pub redelivered: u32,
    pub reorderings: u32,
    /// Largest reordering seen beyond [`REORDERING`], in segments.
    pub reordering_beyond: u16,
    pub marked: u32,
    pub resent_bytes: u64,
    /// Timeouts, the episodes they made, and the time in these but the one that runs.
    pub timeouts: u16,
    pub timeout_episodes: u16,
    timeout_ns: u64,
    /// Time at which the running episode began; 0 = none.
    timeout_since: u64,
    /// Segments without data that were sent again: SYNs and FINs.
    pub bare_resent: u32,
    /// Segments received out of order.
    pub out_of_order: u32,
}

/// Segments out of order that TCP has to reckon with before it has seen any (Linux:
/// tcp_reordering).
pub const REORDERING: u16 = 3;
/// Linux: tcp_max_reordering.
const REORDERING_MAX: u64 = 300;

impl Figures {
    /// Notes a segment that arrived after data up to `distance` bytes beyond its end (Linux:
    /// tcp_check_sack_reordering).
    #[cold]
    pub fn on_reordering(&mut self, distance: u64, mss: u16) {
        self.reorderings = self.reorderings.wrapping_add(1);
        // The segment that ends there counts too.
        let degree = 1 + distance.div_ceil(u64::from(mss).max(1));
        let beyond = degree.min(REORDERING_MAX).saturating_sub(REORDERING.into()) as u16;
        self.reordering_beyond = self.reordering_beyond.max(beyond);
    }

    /// Records the sender's limiting factor from now on.
    #[inline]
    pub fn set_pace(&mut self, now: Instant, pace: Pace) {
        self.spent[self.pace as usize] += now.0.saturating_sub(self.since);
        self.since = now.0;
        self.pace = pace;
    }

    /// Returns a copy in which running times are counted up to now.
    pub fn upto(&self, now: Instant) -> Figures {
        let mut figures = *self;
        figures.set_pace(now, self.pace);
        figures.on_timeouts_over(now);
        figures
    }

    /// A retransmission timeout; the first since something got through begins an episode (RFC 9293
    /// 3.8.3).
    #[cold]
    pub fn on_timeout(&mut self, now: Instant, is_first: bool) {
        self.timeouts = self.timeouts.saturating_add(1);
        if is_first {
            self.timeout_episodes = self.timeout_episodes.saturating_add(1);
            self.timeout_since = now.0;
        }
    }

    /// Everything that was outstanding then has got through.
    pub fn on_timeouts_over(&mut self, now: Instant) {
        if self.timeout_since != 0 {
            self.timeout_ns += now.0.saturating_sub(self.timeout_since);
            self.timeout_since = 0;
        }
    }

    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ns / 1_000_000
    }

    /// Time with something outstanding.
    pub fn busy_ns(&self) -> u64 {
        self.spent[1..].iter().sum()
    }

    pub fn window_ns(&self) -> u64 {
        self.spent[Pace::Window as usize]
    }

    pub fn buffer_ns(&self) -> u64 {
        self.spent[Pace::Buffer as usize]
    }

    /// Returns whether there is more to keep than the time that the connection was busy.
    pub fn is_worth_a_box(&self) -> bool {
        let limited = self.window_ns() + self.buffer_ns();
        let events =
            self.bare_resent | self.dsacks | self.reorderings | self.marked | self.out_of_order;
        // A pace that runs on while nothing is outstanding is that of a closed window.
        limited != 0 || self.resent_bytes != 0 || events != 0 || self.pace != Pace::Idle
    }
}

/// Counters kept while a connection rests that has seen more than plain transfers.
#[derive(Debug, Default)]
pub struct Kept {
    pub figures: Figures,
    pub rack: Rack,
    pub undo: Undo,
    pub search: Option<Search>,
    /// REMOTE_UTO (RFC 5482 3.1).
    pub peer_timeout: Option<UserTimeout>,
    /// Largest pacing rate in bytes a second (SO_MAX_PACING_RATE); 0 = no limit.
    pub rate_max: u32,
    pub bounds: Bounds,
}

/// Counters kept while a connection rests.
#[derive(Debug, Default)]
pub struct Past {
    /// Linux counts in jiffies, no finer.
    busy_ms: u32,
    pub rate: KeptRate,
}

/// The last valid delivery rate, in units of 128 bytes a second; the highest bit says that the path
/// was the limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeptRate(u32);

impl KeptRate {
    const UNIT: u64 = 128;
    const BY_PATH: u32 = 1 << 31;

    pub fn of(rate: Rate) -> KeptRate {
        let units = (rate.bytes_per_second / Self::UNIT).min(u64::from(Self::BY_PATH - 1)) as u32;
        KeptRate(if rate.is_app_limited {
            units
        } else {
            units | Self::BY_PATH
        })
    }

    pub fn get(self) -> Rate {
        let units = self.0 & !Self::BY_PATH;
        Rate {
            bytes_per_second: u64::from(units) * Self::UNIT,
            is_app_limited: self.0 & Self::BY_PATH == 0,
        }
    }
}

impl Past {
    /// Keeps the time of a flight that has met nothing else.
    pub fn add_busy(&mut self, figures: &Figures) {
        let ms = figures.busy_ns() / 1_000_000;
        self.busy_ms = self
            .busy_ms
            .saturating_add(u32::try_from(ms).unwrap_or(u32::MAX));
    }

    pub fn busy_ns(&self) -> u64 {
        u64::from(self.busy_ms) * 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_counted_for_the_limit_that_held_the_sender_back() {
        let mut figures = Figures::default();
        figures.set_pace(Instant(10), Pace::Busy);
        figures.set_pace(Instant(30), Pace::Window);
        figures.set_pace(Instant(35), Pace::Buffer);
        figures.set_pace(Instant(36), Pace::Idle);
        let later = figures.upto(Instant(1_000));
        assert_eq!(
            (later.busy_ns(), later.window_ns(), later.buffer_ns()),
            (26, 5, 1)
        );
    }

    #[test]
    fn a_delivery_rate_and_its_limit_survive_an_idle_period() {
        let rate = |bytes_per_second, is_app_limited| Rate {
            bytes_per_second,
            is_app_limited,
        };
        for rate in [rate(0, true), rate(128_000, false), rate(1 << 36, true)] {
            assert_eq!(KeptRate::of(rate).get(), rate);
        }
        assert_eq!(KeptRate::default().get(), rate(0, true));
    }

    #[test]
    fn timeouts_make_one_episode_until_something_gets_through() {
        let mut figures = Figures::default();
        figures.on_timeout(Instant(1_000_000), true);
        figures.on_timeout(Instant(3_000_000), false);
        assert_eq!(figures.upto(Instant(4_000_000)).timeout_ms(), 3);
        figures.on_timeouts_over(Instant(8_000_000));
        figures.on_timeouts_over(Instant(9_000_000));
        let counts = (figures.timeouts, figures.timeout_episodes);
        assert_eq!((counts, figures.timeout_ms()), ((2, 1), 7));
    }

    #[test]
    fn a_frame_of_several_segments_counts_for_all() {
        let mut segments = Segments::default();
        segments.on_sent(0, 1448);
        segments.on_sent(1448, 1448);
        segments.on_sent(1449, 1448);
        assert_eq!((segments.total_out, segments.data_out), (4, 3));
    }
}
