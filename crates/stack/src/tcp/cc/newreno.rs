//! NewReno: RFC 5681 3.1 (congestion avoidance by bytes counted), RFC 6582.

use super::Window;

/// Bytes acknowledged towards the next increase.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewReno {
    acked: u32,
}

impl NewReno {
    /// RFC 5681 3.1: one segment for every window of acknowledged bytes.
    pub fn on_ack(&mut self, window: &mut Window, bytes: u32) {
        self.acked = self.acked.saturating_add(bytes);
        if self.acked >= window.cwnd {
            self.acked -= window.cwnd;
            window.grow(window.mss);
        }
    }

    /// RFC 5681 equation 4: half of what is in flight.
    pub fn on_loss(&mut self, window: &Window, in_flight: u32) -> u32 {
        self.acked = 0;
        in_flight.min(window.cwnd) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_segment_is_added_per_window() {
        let mut reno = NewReno::default();
        let mut window = Window {
            cwnd: 10_000,
            ssthresh: 5_000,
            mss: 1_000,
        };
        for _ in 0..10 {
            reno.on_ack(&mut window, 1_000);
        }
        assert_eq!(window.cwnd, 11_000);
        assert_eq!(reno.on_loss(&window, 11_000), 5_500);
    }
}
