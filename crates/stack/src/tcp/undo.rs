//! Undo of a reduction when nothing had been lost (RFC 4015 3.2 and 3.4, RFC 3522 3.2, RFC 2883 5).

use super::assembler::Range;
use super::cc::Saved;
use super::seq;

#[derive(Clone, Debug, Default)]
pub struct Undo {
    /// The state to go back to. Kept after the episode: the D-SACK for a needless retransmission
    /// comes about when the episode ends.
    prior: Option<Saved>,
    /// Range of the episode's retransmissions: a D-SACK elsewhere does not concern them.
    range: Range,
    /// Retransmitted bytes that no D-SACK has called needless.
    bytes: u64,
    /// Something was sent again in this episode.
    has_resent: bool,
    /// Our timestamp when the first retransmission that may still be in flight left.
    stamp: Option<u32>,
}

impl Undo {
    /// An episode begins.
    pub fn begin(&mut self, prior: Saved, una: u64) {
        self.prior = Some(prior);
        self.has_resent = false;
        // An earlier retransmission that is still in flight is no original when it arrives.
        if self.range.end <= una {
            self.range = Range::default();
            self.bytes = 0;
            self.stamp = None;
        }
    }

    pub fn on_resent(&mut self, range: Range, stamp: u32) {
        let known = self.range;
        self.range = if known == Range::default() {
            range
        } else {
            Range {
                start: known.start.min(range.start),
                end: known.end.max(range.end),
            }
        };
        self.bytes += range.end - range.start;
        self.has_resent = true;
        self.stamp.get_or_insert(stamp);
    }

    /// Nothing has been retransmitted: all data that has arrived since are originals.
    pub fn has_originals_only(&self) -> bool {
        !self.has_resent
    }

    /// An ACK echoes this: did it leave before the first retransmission?
    pub fn is_of_original(&self, echo: Option<u32>) -> bool {
        matches!((self.stamp, echo), (Some(stamp), Some(echo)) if seq::is_older(echo, stamp))
    }

    /// `true`: every retransmission of the episode has now been called needless.
    #[cold]
    pub fn on_dsack(&mut self, range: Range) -> bool {
        let is_inside = self.range.start <= range.start && range.end <= self.range.end;
        if self.prior.is_none() || self.bytes == 0 || !is_inside {
            return false;
        }
        self.bytes = self.bytes.saturating_sub(range.end - range.start);
        self.bytes == 0
    }

    /// Takes the state to go back to, once.
    pub fn take(&mut self) -> Option<Saved> {
        self.prior.take()
    }
}
