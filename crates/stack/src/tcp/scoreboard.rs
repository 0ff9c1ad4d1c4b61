//! What has been sent and not yet acknowledged, one record per transmission.
//!
//! RFC 6675 3 asks for a scoreboard, RFC 8985 6.1 for the time of every transmission; both are the same table here.
//! The records lie gapless from snd.una to snd.nxt. A record is a super-frame until a SACK block or a loss cuts it.

use alloc::collections::VecDeque;

use super::assembler::Range;
use super::delivery::Stamp;

/// Most records of one connection. Beyond it nothing new is sent until some are acknowledged, and SACK blocks that
/// would need another cut are rounded inwards.
pub const RECORDS_MAX: usize = 16_384;

/// One transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub start: u64,
    pub end: u64,
    /// When it was last sent, in nanoseconds.
    pub sent_at: u64,
    pub stamp: Stamp,
    pub is_sacked: bool,
    /// Thought lost and not yet sent again.
    pub is_lost: bool,
    /// Times it was sent again.
    pub resent: u8,
}

impl Record {
    fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// What an ACK brought, for the estimators and for loss detection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivered {
    /// Bytes newly delivered, cumulatively or selectively.
    pub bytes: u64,
    /// Of these, by SACK.
    pub sacked: u64,
    /// Bytes that the cumulative ACK covered and that had been sent again.
    pub resent_bytes: u64,
    /// Transmission time of the newest delivered record that was sent once (Karn).
    pub clean_sent_at: Option<u64>,
    /// RFC 8985 6.2 step 2: the most recently sent record among the delivered ones, with its end.
    pub newest: Option<Newest>,
    /// RFC 8985 6.2 step 3: a record below the highest delivered one was delivered late, without retransmission.
    pub lowest_clean_end: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub struct Newest {
    pub sent_at: u64,
    pub end: u64,
    pub was_resent: bool,
    pub stamp: Stamp,
}

impl Delivered {
    fn note(&mut self, record: &Record) {
        self.bytes += record.len();
        if record.resent == 0 {
            self.clean_sent_at = self.clean_sent_at.max(Some(record.sent_at));
            self.lowest_clean_end = Some(
                self.lowest_clean_end
                    .map_or(record.end, |e| e.min(record.end)),
            );
        }
        let newer = self
            .newest
            .is_none_or(|n| (record.sent_at, record.end) > (n.sent_at, n.end));
        if newer {
            self.newest = Some(Newest {
                sent_at: record.sent_at,
                end: record.end,
                was_resent: record.resent > 0,
                stamp: record.stamp,
            });
        }
    }
}

#[derive(Debug, Default)]
pub struct Scoreboard {
    records: VecDeque<Record>,
    sacked: u64,
    lost: u64,
    sacked_records: u32,
    /// No lost record starts before this.
    lost_from: u64,
    /// End of the highest SACKed record (RFC 8985 RACK.fack).
    highest_sacked: u64,
}

impl Scoreboard {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.records.len() >= RECORDS_MAX
    }

    pub fn records(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.records.iter()
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
    pub fn reset(&mut self) {
        let mut records = core::mem::take(&mut self.records);
        records.clear();
        records.shrink_to(64);
        *self = Scoreboard {
            records,
            ..Scoreboard::default()
        };
    }

    /// Nothing is SACKed, lost.
    #[inline]
    pub fn is_clean(&self) -> bool {
        self.sacked == 0 && self.lost == 0
    }

    /// Everything is acknowledged. Gives the time of the newest record if it was sent once (Karn).
    #[inline]
    pub fn take_all(&mut self) -> Option<u64> {
        let newest = self
            .records
            .back()
            .filter(|r| r.resent == 0)
            .map(|r| r.sent_at);
        self.records.clear();
        self.lost_from = 0;
        newest
    }

    pub fn sacked_records(&self) -> u32 {
        self.sacked_records
    }

    pub fn highest_sacked(&self) -> u64 {
        self.highest_sacked
    }

    /// Bytes thought to be in the network: sent, neither delivered nor lost (RFC 6675 4, pipe).
    #[inline]
    pub fn in_flight(&self) -> u64 {
        match (self.records.front(), self.records.back()) {
            (Some(first), Some(last)) => last.end - first.start - self.sacked - self.lost,
            _ => 0,
        }
    }

    /// When the oldest outstanding record was last sent.
    pub fn first_sent_at(&self) -> Option<u64> {
        self.records.front().map(|r| r.sent_at)
    }

    pub fn last(&self) -> Option<&Record> {
        self.records.back()
    }

    /// New data left. Small segments of one burst share a record with their predecessor only if sent at once.
    #[inline]
    pub fn push(&mut self, start: u64, end: u64, now: u64, stamp: Stamp) {
        debug_assert!(self.records.back().is_none_or(|r| r.end == start));
        self.records.push_back(Record {
            start,
            end,
            sent_at: now,
            stamp,
            is_sacked: false,
            is_lost: false,
            resent: 0,
        });
    }

    /// The cumulative ACK moved to `una`.
    #[inline]
    pub fn acknowledge(&mut self, una: u64, delivered: &mut Delivered) {
        while let Some(record) = self.records.front_mut() {
            if record.start >= una {
                break;
            }
            let covered = Record {
                end: record.end.min(una),
                ..*record
            };
            record.start = covered.end;
            let is_done = record.start == record.end;
            let len = covered.len();
            if covered.is_lost {
                self.lost -= len;
            }
            if covered.is_sacked {
                self.sacked -= len;
                self.sacked_records -= u32::from(is_done);
            } else {
                delivered.note(&covered);
            }
            if covered.resent > 0 {
                delivered.resent_bytes += len;
            }
            if !is_done {
                break;
            }
            self.records.pop_front();
        }
        if self.records.is_empty() {
            self.lost_from = 0;
        }
    }

    /// Marks what one SACK block covers. Cuts fall on multiples of `mss` so that a peer cannot crumble the table
    /// (CVE-2019-11478).
    pub fn sack(&mut self, block: Range, mss: u64, delivered: &mut Delivered) {
        let mut index = self.records.partition_point(|r| r.end <= block.start);
        while let Some(&record) = self.records.get(index) {
            if record.start >= block.end {
                break;
            }
            if record.is_sacked {
                index += 1;
                continue;
            }
            let (low, high) = inward(&record, block, mss);
            if low >= high {
                index += 1;
                continue;
            }
            if record.start < low {
                if !self.split(index, low) {
                    return;
                }
                index += 1;
            }
            if high < self.records[index].end && !self.split(index, high) {
                return;
            }
            self.mark_sacked(index, delivered);
            index += 1;
        }
    }

    fn mark_sacked(&mut self, index: usize, delivered: &mut Delivered) {
        let record = &mut self.records[index];
        delivered.note(record);
        let len = record.len();
        delivered.sacked += len;
        record.is_sacked = true;
        if record.is_lost {
            record.is_lost = false;
            self.lost -= len;
        }
        self.sacked += len;
        self.sacked_records += 1;
        self.highest_sacked = self.highest_sacked.max(record.end);
    }

    fn split(&mut self, index: usize, at: u64) -> bool {
        if self.is_full() {
            return false;
        }
        let record = &mut self.records[index];
        let tail = Record {
            start: at,
            ..*record
        };
        record.end = at;
        self.sacked_records += u32::from(tail.is_sacked);
        self.records.insert(index + 1, tail);
        true
    }

    /// Marks unsacked records as lost for which `is_lost` says so; `None` ends the walk.
    pub fn mark_lost(&mut self, mut is_lost: impl FnMut(&Record) -> Option<bool>) -> u64 {
        let mut marked = 0;
        for record in &mut self.records {
            if record.is_sacked || record.is_lost {
                continue;
            }
            match is_lost(record) {
                None => break,
                Some(false) => {}
                Some(true) => {
                    record.is_lost = true;
                    let len = record.len();
                    self.lost += len;
                    if marked == 0 {
                        self.lost_from = self.lost_from.min(record.start);
                    }
                    marked += len;
                }
            }
        }
        marked
    }

    /// Takes back all loss marks (the timeout or recovery was spurious).
    pub fn unmark_lost(&mut self) {
        for record in &mut self.records {
            record.is_lost = false;
        }
        self.lost = 0;
    }

    /// The peer may have thrown away what it had SACKed (RFC 2018 8): forget it.
    pub fn forget_sacks(&mut self) {
        for record in &mut self.records {
            record.is_sacked = false;
        }
        self.sacked = 0;
        self.sacked_records = 0;
        self.highest_sacked = 0;
    }

    /// Cuts the first record to one segment and marks it lost (RFC 6582: a partial ACK without SACK).
    pub fn mark_first_lost(&mut self, mss: u64) {
        let Some(first) = self.records.front() else {
            return;
        };
        if first.is_lost {
            return;
        }
        let at = first.start + mss;
        if at < first.end {
            self.split(0, at);
        }
        let first_start = self.records[0].start;
        self.mark_lost(|r| {
            if r.start == first_start {
                Some(true)
            } else {
                None
            }
        });
        self.lost_from = self.lost_from.min(first_start);
    }

    /// The first run of lost bytes, at most `max` long: what to send again next.
    pub fn find_lost(&mut self, max: u64) -> Option<Range> {
        if self.lost == 0 {
            return None;
        }
        let mut index = self.records.partition_point(|r| r.end <= self.lost_from);
        while !self.records.get(index)?.is_lost {
            index += 1;
        }
        let start = self.records[index].start;
        self.lost_from = start;
        let mut end = start;
        for record in self.records.range(index..) {
            if !record.is_lost || end - start >= max {
                break;
            }
            end = record.end;
        }
        Some(Range {
            start,
            end: end.min(start + max),
        })
    }

    /// Bytes from `start` to `end` left again.
    pub fn mark_resent(&mut self, range: Range, now: u64, stamp: Stamp) {
        let mut index = self.records.partition_point(|r| r.end <= range.start);
        while let Some(&record) = self.records.get(index) {
            if record.start >= range.end {
                break;
            }
            if record.end > range.end && !self.split(index, range.end) {
                break;
            }
            let record = &mut self.records[index];
            if record.is_lost {
                record.is_lost = false;
                self.lost -= record.len();
            }
            record.resent = record.resent.saturating_add(1);
            record.sent_at = now;
            record.stamp = stamp;
            index += 1;
        }
        // A tail that is sent again lies beyond what may be lost before it.
        if range.start <= self.lost_from {
            self.lost_from = self.lost_from.max(range.end);
        }
    }

    /// Whether [`Scoreboard::find_lost`] finds every loss: the search begins no later than the first.
    pub fn finds_all_lost(&self) -> bool {
        let first = self.records.iter().find(|r| r.is_lost);
        first.is_none_or(|r| self.lost_from <= r.start)
    }

    #[cfg(test)]
    fn check(&self) {
        let sum = |f: fn(&Record) -> bool| {
            self.records
                .iter()
                .filter(|r| f(r))
                .map(Record::len)
                .sum::<u64>()
        };
        assert_eq!(self.sacked, sum(|r| r.is_sacked));
        assert_eq!(self.lost, sum(|r| r.is_lost));
        assert_eq!(
            self.sacked_records as usize,
            self.records.iter().filter(|r| r.is_sacked).count()
        );
        assert!(
            self.records
                .iter()
                .all(|r| r.start < r.end && !(r.is_sacked && r.is_lost))
        );
        assert!(
            self.records
                .iter()
                .zip(self.records.iter().skip(1))
                .all(|(a, b)| a.end == b.start)
        );
        assert!(self.finds_all_lost());
    }
}

/// The part of `record` that `block` covers, rounded inwards to multiples of `mss` from the record's start.
fn inward(record: &Record, block: Range, mss: u64) -> (u64, u64) {
    let low = if block.start <= record.start {
        record.start
    } else {
        record.start + (block.start - record.start).div_ceil(mss) * mss
    };
    let high = if block.end >= record.end {
        record.end
    } else {
        record.start + (block.end - record.start) / mss * mss
    };
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const MSS: u64 = 10;

    #[derive(Debug, Clone)]
    enum Step {
        Push(u64),
        Ack(u64),
        Sack(u64, u64),
        Lose(u64),
        Resend(u64),
        FirstLost,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (1u64..8).prop_map(Step::Push),
            (0u64..12).prop_map(Step::Ack),
            (0u64..40, 1u64..10).prop_map(|(a, b)| Step::Sack(a, b)),
            (0u64..300).prop_map(Step::Lose),
            (1u64..6).prop_map(|n| Step::Resend(n * MSS)),
            Just(Step::FirstLost),
        ];
        prop::collection::vec(step, 1..120)
    }

    /// State of one byte in the naive oracle: (sacked, lost).
    type Bytes = Vec<(bool, bool)>;

    proptest! {
        #[test]
        fn counts_equal_a_byte_by_byte_oracle(steps in steps()) {
            let mut board = Scoreboard::default();
            let mut bytes: Bytes = Vec::new();
            let (mut una, mut nxt) = (0u64, 0u64);
            for (clock, step) in steps.into_iter().enumerate() {
                let mut delivered = Delivered::default();
                match step {
                    Step::Push(segments) => {
                        board.push(nxt, nxt + segments * MSS, clock as u64, Stamp::default());
                        nxt += segments * MSS;
                        bytes.resize(nxt as usize, (false, false));
                    }
                    Step::Ack(segments) => {
                        una = (una + segments * MSS).min(nxt);
                        board.acknowledge(una, &mut delivered);
                    }
                    Step::Sack(from, len) => {
                        let block = Range { start: una + from * MSS, end: (una + (from + len) * MSS).min(nxt) };
                        if block.start < block.end {
                            board.sack(block, MSS, &mut delivered);
                            for b in &mut bytes[block.start as usize..block.end as usize] { *b = (true, false); }
                        }
                    }
                    Step::Lose(upto) => {
                        board.mark_lost(|r| if r.end <= una + upto { Some(true) } else { None });
                        let ends: Vec<(u64, u64)> = board.records().map(|r| (r.start, r.end)).collect();
                        for (start, end) in ends {
                            if end > una + upto { continue; }
                            for b in &mut bytes[start as usize..end as usize] { if !b.0 { b.1 = true; } }
                        }
                    }
                    Step::Resend(max) => {
                        if let Some(range) = board.find_lost(max) {
                            let first = (una..nxt).find(|i| bytes[*i as usize].1).unwrap();
                            prop_assert_eq!(range.start, first);
                            board.mark_resent(range, clock as u64, Stamp::default());
                            for b in &mut bytes[range.start as usize..range.end as usize] {
                                prop_assert!(b.1);
                                b.1 = false;
                            }
                        }
                    }
                    Step::FirstLost => {
                        if board.records().next().is_some_and(|r| !r.is_sacked) {
                            board.mark_first_lost(MSS);
                            let end = board.records().next().unwrap().end;
                            for b in &mut bytes[una as usize..end as usize] { b.1 = true; }
                        }
                    }
                }
                board.check();
                let live = &bytes[una as usize..];
                prop_assert_eq!(board.sacked_bytes(), live.iter().filter(|b| b.0).count() as u64);
                prop_assert_eq!(board.lost_bytes(), live.iter().filter(|b| b.1).count() as u64);
                prop_assert_eq!(board.in_flight(), live.iter().filter(|b| !b.0 && !b.1).count() as u64);
            }
        }
    }

    #[test]
    fn a_tail_that_is_sent_again_does_not_hide_losses_before_it() {
        let mut board = Scoreboard::default();
        for i in 0..5 {
            board.push(i * MSS, (i + 1) * MSS, i, Stamp::default());
        }
        board.mark_lost(|record| Some(record.start == 0));
        let tail = Range {
            start: 4 * MSS,
            end: 5 * MSS,
        };
        board.mark_resent(tail, 9, Stamp::default());
        board.check();
        let first = Range { start: 0, end: MSS };
        assert_eq!(board.find_lost(MSS), Some(first));
    }

    #[test]
    fn a_sack_block_within_a_super_frame_is_rounded_inwards() {
        let mut board = Scoreboard::default();
        let mut delivered = Delivered::default();
        board.push(0, 100, 1, Stamp::default());
        board.sack(Range { start: 13, end: 47 }, MSS, &mut delivered);
        assert_eq!(delivered.sacked, 20);
        let cuts: Vec<_> = board
            .records()
            .map(|r| (r.start, r.end, r.is_sacked))
            .collect();
        assert_eq!(cuts, [(0, 20, false), (20, 40, true), (40, 100, false)]);
    }
}
