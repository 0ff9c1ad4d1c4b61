//! The scoreboard: sent and unacknowledged data, one record per transmission.
//!
//! RFC 6675 3 asks for a scoreboard, RFC 8985 6.1 for the time of every transmission; both are the
//! same table here. The records cover snd.una to snd.nxt without a gap. A record is a super-frame
//! until a SACK block or a loss cuts it.
//!
//! Most flights have neither: their records stay in a queue. The first SACK block, loss or
//! retransmission moves all records before its end to [`Torn`], where each step looks at a few
//! records only, and where neighbouring SACKed records are merged. The work that one segment can
//! cause is bounded by what the sender itself has sent, or by [`WALK_MAX`].

mod record;
mod table;
mod torn;
mod walk;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::assembler::Range;
use super::delivery::Stamp;

pub use record::{Again, Delivered, Newest, Record};
use torn::{Tearing, Torn};
pub use walk::Judgement;

/// Places for records that stay with the lists of a connection that has ended.
const KEPT_MAX: usize = 64;

/// Most records of one connection (1.2 MB when the chunks are full). Beyond it SACK blocks that
/// would need another cut are ignored: their data is recognised when they have grown over whole
/// records, or not at all, and is then retransmitted needlessly.
pub const RECORDS_MAX: usize = 24_576;

/// Nothing new is sent beyond so many records, until some are acknowledged or merge: room is left
/// for cuts.
const SENT_MAX: usize = 16_384;

/// Most records that loss detection examines for one segment or timer, and that one retransmission
/// gathers. The rest of a walk follows at once, from the timer.
pub const WALK_MAX: usize = 32;

/// The flight, in segments.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlightCounts {
    pub outstanding: u32,
    /// Outstanding segments with data; and SACKed ones.
    pub data: u32,
    pub sacked: u32,
    /// Thought lost and not yet sent again.
    pub lost: u32,
    /// Thought lost and sent again since.
    pub repaired: u32,
    /// Retransmitted, as a repair or as a probe, and neither acknowledged nor SACKed since.
    pub resent: u32,
}

#[derive(Debug, Default)]
pub struct Scoreboard {
    /// As they left.
    whole: VecDeque<Record>,
    /// The records before them, if any are cut.
    torn: Option<Box<Torn>>,
    /// Bounds of the records.
    start: u64,
    end: u64,
    sacked: u64,
    lost: u64,
}

impl Scoreboard {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns whether no room is left for more new data.
    pub fn is_full(&self) -> bool {
        self.len() >= SENT_MAX
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        let torn = self.torn.as_ref().map_or(0, |t| t.records.len());
        self.whole.len() + torn
    }

    pub fn records(&self) -> impl DoubleEndedIterator<Item = &Record> {
        let torn = self.torn.iter().flat_map(|torn| torn.records.iter());
        torn.chain(&self.whole)
    }

    #[inline]
    pub fn sacked_bytes(&self) -> u64 {
        self.sacked
    }

    #[inline]
    pub fn lost_bytes(&self) -> u64 {
        self.lost
    }

    /// Empty, as new, with the room that it has grown (up to a limit).
    #[inline]
    pub fn reset(&mut self) {
        let Scoreboard {
            whole,
            torn,
            start,
            end,
            sacked,
            lost,
        } = self;
        whole.clear();
        if whole.capacity() > KEPT_MAX {
            whole.shrink_to(KEPT_MAX);
        }
        *torn = None;
        (*start, *end, *sacked, *lost) = (0, 0, 0, 0);
    }

    /// Nothing is SACKed, lost.
    #[inline]
    pub fn is_clean(&self) -> bool {
        self.sacked == 0 && self.lost == 0
    }

    /// Returns the newest record if it was sent once: the only one whose time is unambiguous
    /// (Karn).
    #[inline]
    pub fn newest_clean(&self) -> Option<&Record> {
        self.last().filter(|r| r.again == Again::No)
    }

    /// Everything is acknowledged.
    #[inline]
    pub fn take_all(&mut self) {
        self.whole.clear();
        if self.torn.is_some() {
            self.torn = None;
        }
        self.start = self.end;
    }

    /// Segments that are SACKed; exact as far as loss detection counts.
    pub fn sacked_segments(&self) -> u32 {
        self.torn.as_ref().map_or(0, |torn| torn.sacked_segments)
    }

    /// End of the highest SACKed record (RFC 8985 RACK.fack).
    #[inline]
    pub fn highest_sacked(&self) -> u64 {
        self.torn.as_ref().map_or(0, |torn| torn.highest_sacked)
    }

    /// Counts outstanding data, in segments of `mss` bytes; a byte beyond `end` is a FIN.
    pub fn counts(&self, end: u64, mss: u64) -> FlightCounts {
        let mut counts = FlightCounts::default();
        for record in self.records() {
            let len = record.end.min(end).saturating_sub(record.start);
            let data = u32::try_from(len.div_ceil(mss)).unwrap_or(u32::MAX);
            counts.data += data;
            // A FIN that no data carries is a segment too.
            let count = data.max(1);
            counts.outstanding += count;
            if record.is_sacked {
                counts.sacked += count;
            } else if record.is_lost {
                counts.lost += count;
            } else if record.was_resent() {
                counts.resent += count;
                counts.repaired += count * u32::from(record.again == Again::Lost);
            }
        }
        counts
    }

    /// Bytes thought to be in the network: sent, neither delivered nor lost (RFC 6675 4, pipe).
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.end - self.start - self.sacked - self.lost
    }

    /// Returns a lower bound of the outstanding segments: each record is one at least.
    pub fn segments_at_least(&self, mss: u64) -> u32 {
        let torn = self.torn.as_ref().map_or(0, |torn| torn.records.len());
        let full = (self.end - self.start).div_ceil(mss.max(1));
        u32::try_from(full.max((self.whole.len() + torn) as u64)).unwrap_or(u32::MAX)
    }

    /// Time at which the oldest outstanding record was last sent.
    pub fn first_sent_at(&self) -> Option<u64> {
        self.records().next().map(|r| r.sent_at)
    }

    #[inline]
    pub fn last(&self) -> Option<&Record> {
        let torn = || self.torn.as_ref()?.records.iter().next_back();
        self.whole.back().or_else(torn)
    }

    /// New data left. Small segments of one burst share a record with their predecessor only if
    /// sent at once.
    #[inline]
    pub fn push(&mut self, start: u64, end: u64, now: u64, stamp: Stamp) {
        if self.is_empty() {
            self.start = start;
        } else {
            debug_assert!(self.end == start);
        }
        self.end = end;
        let sent_at = self.torn.as_ref().map_or(now, |torn| torn.not_before(now));
        self.whole
            .push_back(Record::new(start, end, sent_at, stamp));
    }

    /// All that is outstanding has left another stack.
    pub fn note_elsewhere(&mut self) {
        for record in &mut self.whole {
            record.again = Again::Elsewhere;
        }
    }

    /// The cumulative ACK moved to `una`.
    #[inline]
    pub fn acknowledge(&mut self, una: u64, delivered: &mut Delivered) {
        if self.torn.is_some() {
            self.acknowledge_torn(una, delivered);
        }
        while let Some(record) = self.whole.front_mut() {
            if record.start >= una {
                break;
            }
            let covered = Record {
                end: record.end.min(una),
                ..*record
            };
            record.start = covered.end;
            delivered.note(&covered);
            if record.start < record.end {
                break;
            }
            self.whole.pop_front();
        }
        self.start = self.start.max(una.min(self.end));
    }

    /// Takes back all loss marks (the timeout or recovery was spurious).
    pub fn unmark_lost(&mut self) {
        self.lost = 0;
        let flight = Range {
            start: self.start,
            end: self.end,
        };
        if let Some(torn) = &mut self.torn {
            torn.unmark_lost(flight);
        }
    }

    /// Forgets all SACKs, because the peer may have discarded SACKed data (RFC 2018 8).
    pub fn forget_sacks(&mut self) {
        self.sacked = 0;
        if let Some(torn) = &mut self.torn {
            torn.forget_sacks();
        }
    }

    /// Handles a timeout: data that is not SACKed is lost. Returns the number of newly lost bytes.
    pub fn mark_all_lost(&mut self) -> u64 {
        let Tearing { torn, lost, .. } = self.tear(u64::MAX);
        torn.resent.clear();
        torn.mark_lost_where(lost, |_| true)
    }

    /// Segments larger than `mss` do not get through.
    pub fn mark_lost_above(&mut self, mss: u64) {
        let Tearing { torn, lost, .. } = self.tear(u64::MAX);
        torn.mark_lost_where(lost, |record| record.len() > mss);
    }

    /// One record does not get through.
    pub fn mark_one_lost(&mut self, range: Range) {
        let Tearing { torn, lost, .. } = self.tear(range.end);
        torn.mark_lost_where(lost, |r| range.start <= r.start && r.end <= range.end);
    }

    /// Cuts the first record to one segment and marks it lost (RFC 6582: a partial ACK without
    /// SACK).
    pub fn mark_first_lost(&mut self, mss: u64) {
        let upto = self.start + 1;
        let Tearing { torn, lost, .. } = self.tear(upto);
        torn.mark_first_lost(mss, lost);
    }

    /// Returns the first run of lost bytes, at most `max` long: the next to retransmit.
    pub fn find_lost(&mut self, max: u64) -> Option<Range> {
        self.torn.as_mut()?.find_lost(max)
    }

    /// Returns whether [`Scoreboard::find_lost`] finds every loss.
    pub fn finds_all_lost(&self) -> bool {
        let is_sound = self.torn.as_ref().is_none_or(|t| t.records.is_sound());
        is_sound && self.whole.iter().all(Record::is_pending)
    }
}
