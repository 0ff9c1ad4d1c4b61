//! DCTCP (RFC 8257): the window falls by half of the share of bytes that were marked.
//!
//! Everything that is not ECN is NewReno (RFC 8257 3.4, 3.5).

use super::{NewReno, Window};
use crate::tcp::seq::Outstanding;

/// alpha is a fraction of 2²⁰.
const ONE: u32 = 1 << 20;
/// RFC 8257 4.2: g = 1/16.
const GAIN_SHIFT: u32 = 4;

#[derive(Clone, Copy, Debug)]
pub struct Dctcp {
    pub reno: NewReno,
    alpha: u32,
    acked: u32,
    marked: u32,
    /// Low bits of the sequence number that ends the observation window.
    window_end: u32,
    has_window: bool,
}

impl Default for Dctcp {
    fn default() -> Dctcp {
        Dctcp {
            reno: NewReno::default(),
            // RFC 8257 3.3: the conservative beginning.
            alpha: ONE,
            acked: 0,
            marked: 0,
            window_end: 0,
            has_window: false,
        }
    }
}

impl Dctcp {
    /// RFC 8257 3.3, steps 1 to 8, for every ACK that advances.
    pub fn on_delivered(&mut self, bytes: u32, is_marked: bool, outstanding: Outstanding) {
        self.acked = self.acked.saturating_add(bytes);
        if is_marked {
            self.marked = self.marked.saturating_add(bytes);
        }
        let Outstanding { una, nxt } = outstanding;
        let is_over = (una as u32).wrapping_sub(self.window_end) as i32 > 0;
        if !self.has_window {
            self.has_window = true;
            self.window_end = nxt as u32;
        } else if is_over {
            let share = u64::from(self.marked) * u64::from(ONE) / u64::from(self.acked.max(1));
            self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (share >> GAIN_SHIFT) as u32;
            self.alpha = self.alpha.min(ONE);
            (self.acked, self.marked) = (0, 0);
            self.window_end = nxt as u32;
        }
    }

    /// RFC 8257 3.3, step 9: cwnd * (1 - alpha / 2).
    pub fn on_mark(&self, window: &Window) -> u32 {
        let cut = u64::from(window.cwnd) * u64::from(self.alpha) / u64::from(2 * ONE);
        window.cwnd - cut as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_follows_the_share_of_marked_bytes() {
        // RFC 8257 3.3 and 4.2.
        for (marked_of_ten, goal) in [(0, 0.0), (2, 0.2), (5, 0.5), (10, 1.0)] {
            let mut dctcp = Dctcp::default();
            let mut oracle = 1.0f64;
            let mut una = 0u64;
            for _ in 0..200 {
                for i in 0..10u64 {
                    una += 1_000;
                    let nxt = una + 9_000;
                    let outstanding = Outstanding { una, nxt };
                    dctcp.on_delivered(1_000, i < marked_of_ten, outstanding);
                }
                oracle = oracle * 15.0 / 16.0 + goal / 16.0;
            }
            let alpha = f64::from(dctcp.alpha) / f64::from(ONE);
            assert!((alpha - oracle).abs() < 0.06, "{alpha} instead of {oracle}");
        }
    }

    #[test]
    fn a_mark_reduces_the_window_by_half_of_alpha() {
        // RFC 8257 3.3.
        let window = Window {
            cwnd: 100_000,
            ssthresh: 1,
            mss: 1_000,
        };
        for (alpha, cwnd) in [
            (ONE, 50_000),
            (ONE / 2, 75_000),
            (ONE / 10, 95_000),
            (0, 100_000),
        ] {
            let dctcp = Dctcp {
                alpha,
                ..Dctcp::default()
            };
            assert!(dctcp.on_mark(&window).abs_diff(cwnd) <= 1);
        }
    }
}
