//! Traffic counters of each further link. The first link's are the totals less these.

use alloc::vec::Vec;

/// Frames and bytes of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTraffic {
    pub rx_frames: u64,
    pub rx_bytes: u64,
    pub tx_frames: u64,
    pub tx_bytes: u64,
}

/// Traffic of all links but the device's own, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic(Vec<(u16, LinkTraffic)>);

impl Traffic {
    /// Counts frames received on a link.
    #[inline(never)]
    pub(crate) fn count_in(&mut self, link: u16, frames: u64, bytes: u64) {
        let traffic = self.of(link);
        traffic.rx_frames += frames;
        traffic.rx_bytes += bytes;
    }

    /// Counts a frame that leaves by a link.
    #[inline(never)]
    pub(crate) fn count_out(&mut self, link: u16, bytes: usize) {
        let traffic = self.of(link);
        traffic.tx_frames += 1;
        traffic.tx_bytes += bytes as u64;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, LinkTraffic)> + '_ {
        self.0.iter().copied()
    }

    fn of(&mut self, link: u16) -> &mut LinkTraffic {
        let at = match self.0.binary_search_by_key(&link, |(of, _)| *of) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, (link, LinkTraffic::default()));
                at
            }
        };
        &mut self.0[at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_has_its_own_numbers() {
        let mut traffic = Traffic::default();
        for (link, bytes) in [(7, 60), (4096, 1500), (7, 40)] {
            traffic.count_in(link, 1, bytes);
        }
        traffic.count_out(7, 10);
        let all: Vec<_> = traffic.iter().collect();
        let counted = |rx_frames, rx_bytes, tx_frames, tx_bytes| LinkTraffic {
            rx_frames,
            rx_bytes,
            tx_frames,
            tx_bytes,
        };
        assert_eq!(
            all,
            [(7, counted(2, 100, 1, 10)), (4096, counted(1, 1500, 0, 0))]
        );
    }
}
