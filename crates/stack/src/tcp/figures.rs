//! What a connection has met so far: the figures of TCP_INFO that are no state.
//!
//! They are counted beside the data in flight. When the connection rests, the time it was busy is kept in it, and the
//! rest in a box of its own, if there is any: most connections never meet loss, reordering, marks or closed windows.

use alloc::boxed::Box;

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

/// What stays while the connection rests.
#[derive(Debug, Default)]
pub struct Past {
    /// Linux counts in jiffies, no finer.
    busy_ms: u32,
}

impl Past {
    /// The connection rests: its box of figures, made when there is something to keep.
    pub fn keep(&mut self, figures: &Figures, rest: &mut Option<Box<Figures>>) {
        if rest.is_none() && !figures.is_worth_a_box() {
            let ms = figures.busy_ns() / 1_000_000;
            self.busy_ms = self
                .busy_ms
                .saturating_add(u32::try_from(ms).unwrap_or(u32::MAX));
            return;
        }
        rest.get_or_insert_default().add(figures);
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
        let (mut past, mut rest) = (Past::default(), None);
        let mut figures = Figures::default();
        figures.set_pace(Instant(0), Pace::Busy);
        figures.set_pace(Instant(5_000_000), Pace::Idle);
        past.keep(&figures, &mut rest);
        assert!(rest.is_none() && past.busy_ns() == 5_000_000);
        figures.dsacks = 2;
        past.keep(&figures, &mut rest);
        past.keep(&figures, &mut rest);
        assert_eq!(rest.map(|f| (f.dsacks, f.busy_ns())), Some((4, 10_000_000)));
    }
}
