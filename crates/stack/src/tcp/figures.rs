//! What a connection has met so far: the figures of TCP_INFO that are no state.
//!
//! They are counted beside the data in flight. When the connection rests, the time it was busy is kept in it, and the
//! rest in a box of its own, if there is any: most connections never meet loss, reordering, marks or closed windows.
//! What loss detection has learnt of the path is kept with it.

use alloc::boxed::Box;

use super::connection::InFlight;
use super::rack::Rack;
use super::undo::Undo;
use crate::time::Instant;

/// What holds the sender back (Linux: tcp_chrono).
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

#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Nanoseconds at each pace.
    spent: [u64; 4],
    since: u64,
    pace: Pace,
    /// D-SACKs, reorderings, segments that the peer reported as marked.
    pub dsacks: u32,
    pub reorderings: u32,
    pub marked: u32,
    pub resent_bytes: u64,
}

impl Figures {
    /// From now on the sender is held back by this.
    #[inline]
    pub fn set_pace(&mut self, now: Instant, pace: Pace) {
        self.spent[self.pace as usize] += now.0.saturating_sub(self.since);
        self.since = now.0;
        self.pace = pace;
    }

    /// The same, with what runs counted up to now.
    pub fn upto(&self, now: Instant) -> Figures {
        let mut figures = *self;
        figures.set_pace(now, self.pace);
        figures
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

    fn is_worth_a_box(&self) -> bool {
        let limited = self.window_ns() + self.buffer_ns();
        limited != 0 || self.resent_bytes != 0 || self.dsacks | self.reorderings | self.marked != 0
    }

    /// Adds what was counted before a rest.
    pub fn add(&mut self, past: &Figures) {
        for (spent, before) in self.spent.iter_mut().zip(past.spent) {
            *spent += before;
        }
        self.dsacks = self.dsacks.wrapping_add(past.dsacks);
        self.reorderings = self.reorderings.wrapping_add(past.reorderings);
        self.marked = self.marked.wrapping_add(past.marked);
        self.resent_bytes += past.resent_bytes;
    }
}

/// What stays, of one that has met more than plain transfers, while the connection rests.
#[derive(Debug, Default)]
pub struct Kept {
    pub figures: Figures,
    pub rack: Rack,
    pub undo: Undo,
}

/// What stays while the connection rests.
#[derive(Debug, Default)]
pub struct Past {
    /// Linux counts in jiffies, no finer.
    busy_ms: u32,
}

impl Past {
    /// The connection rests: its box, made when there is something to keep.
    pub fn keep(&mut self, flight: &InFlight, kept: &mut Option<Box<Kept>>) {
        let figures = &flight.figures;
        if kept.is_none() && !figures.is_worth_a_box() {
            let ms = figures.busy_ns() / 1_000_000;
            self.busy_ms = self
                .busy_ms
                .saturating_add(u32::try_from(ms).unwrap_or(u32::MAX));
            return;
        }
        let kept = kept.get_or_insert_default();
        kept.figures.add(figures);
        kept.rack = flight.rack.at_rest();
        kept.undo = flight.recovery.undo.clone();
    }

    pub fn busy_ns(&self) -> u64 {
        u64::from(self.busy_ms) * 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_to_what_held_the_sender_back() {
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
    fn a_rest_keeps_what_matters_and_makes_no_box_for_nothing() {
        let (mut past, mut kept) = (Past::default(), None);
        let mut flight = InFlight::default();
        flight.figures.set_pace(Instant(0), Pace::Busy);
        flight.figures.set_pace(Instant(5_000_000), Pace::Idle);
        past.keep(&flight, &mut kept);
        assert!(kept.is_none() && past.busy_ns() == 5_000_000);
        flight.figures.dsacks = 2;
        past.keep(&flight, &mut kept);
        past.keep(&flight, &mut kept);
        let figures = kept.map(|kept| kept.figures);
        assert_eq!(
            figures.map(|f| (f.dsacks, f.busy_ns())),
            Some((4, 10_000_000))
        );
    }
}
