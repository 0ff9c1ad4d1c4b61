//! NewReno: RFC 5681 3.1 (congestion avoidance by bytes counted, RFC 3465 2.1), RFC 6582.

use super::Window;

/// Bytes acknowledged towards the next increase.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewReno {
    acked: u32,
}

impl NewReno {
    /// RFC 3465 2.1: one segment for every window of acknowledged bytes.
    pub fn on_ack(&mut self, window: &mut Window, bytes: u32) {
        self.acked = self.acked.saturating_add(bytes);
        if self.acked >= window.cwnd {
            // A stretch ACK is worth one increase, never a burst of them.
            self.acked = (self.acked - window.cwnd).min(window.cwnd);
            window.grow(window.mss);
        }
    }

    /// RFC 5681 equation 4: half of the data in flight.
    pub fn on_loss(&mut self, window: &Window, in_flight: u32) -> u32 {
        self.acked = 0;
        in_flight.min(window.cwnd) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_equation_three_within_one_segment() {
        // RFC 5681 equation 3: cwnd += SMSS * SMSS / cwnd for each ACK of a full segment.
        let mut reno = NewReno::default();
        let mut window = Window {
            cwnd: 10_000,
            ssthresh: 5_000,
            mss: 1_000,
        };
        let mut oracle = 10_000f64;
        for _ in 0..2_000 {
            reno.on_ack(&mut window, 1_000);
            oracle += 1_000.0 * 1_000.0 / oracle;
            assert!((f64::from(window.cwnd) - oracle).abs() <= 1_500.0);
        }
        assert!(window.cwnd > 60_000);
    }

    #[test]
    fn split_acks_grow_no_faster_than_whole_ones() {
        // RFC 3465 2.1.
        let start = Window {
            cwnd: 10_000,
            ssthresh: 5_000,
            mss: 1_000,
        };
        let (mut whole, mut split) = ((NewReno::default(), start), (NewReno::default(), start));
        for _ in 0..500 {
            whole.0.on_ack(&mut whole.1, 1_000);
            for _ in 0..100 {
                split.0.on_ack(&mut split.1, 10);
            }
        }
        assert_eq!(whole.1.cwnd, split.1.cwnd);
    }

    #[test]
    fn a_loss_halves_the_bytes_in_flight() {
        // RFC 5681 3.1, equation 4.
        let window = Window {
            cwnd: 11_000,
            ssthresh: 5_000,
            mss: 1_000,
        };
        for (in_flight, ssthresh) in [(11_000, 5_500), (4_000, 2_000), (20_000, 5_500)] {
            assert_eq!(NewReno::default().on_loss(&window, in_flight), ssthresh);
        }
    }
}
