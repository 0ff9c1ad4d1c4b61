//! The part of a flight that SACK blocks, losses or retransmissions have touched.
//!
//! RFC 2018 (SACK), RFC 6675 3 and 4 (the sender's record of each byte).

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::table::{Cursor, Table};
use super::{Delivered, RECORDS_MAX, Record, Scoreboard, WALK_MAX};
use crate::tcp::assembler::Range;
use crate::tcp::delivery::Stamp;

/// Exists from the first such event until all that it has touched is acknowledged.
#[derive(Debug, Default)]
pub struct Torn {
    pub records: Table,
    /// Retransmissions, oldest first; some have been overtaken by events.
    pub resent: VecDeque<Resent>,
    /// Nothing before this waits for news of its first transmission.
    pub judged_upto: u64,
    /// Until this is acknowledged no second undo restarts loss detection.
    rewound_upto: u64,
    pub sacked_segments: u32,
    pub highest_sacked: u64,
}

/// Bytes that left again.
#[derive(Clone, Copy, Debug)]
pub struct Resent {
    pub start: u64,
    pub end: u64,
    pub sent_at: u64,
}

/// The torn part of a scoreboard, with the board's counts of SACKed and lost bytes.
pub(super) struct Tearing<'a> {
    pub torn: &'a mut Torn,
    pub sacked: &'a mut u64,
    pub lost: &'a mut u64,
}

impl Scoreboard {
    /// Moves all that begins before `upto`.
    #[inline]
    pub(super) fn tear(&mut self, upto: u64) -> Tearing<'_> {
        if self.whole.front().is_some_and(|r| r.start < upto) {
            self.move_torn(upto);
        }
        let torn = self.torn.get_or_insert_with(Box::default);
        Tearing {
            torn,
            sacked: &mut self.sacked,
            lost: &mut self.lost,
        }
    }

    #[cold]
    fn move_torn(&mut self, upto: u64) {
        let torn = self.torn.get_or_insert_with(Box::default);
        let count = self.whole.partition_point(|r| r.start < upto);
        let (front, back) = self.whole.as_slices();
        let of_front = count.min(front.len());
        torn.records.extend(&front[..of_front]);
        torn.records.extend(&back[..count - of_front]);
        self.whole.drain(..count);
    }

    #[cold]
    pub(super) fn acknowledge_torn(&mut self, una: u64, delivered: &mut Delivered) {
        let Some(torn) = &mut self.torn else {
            return;
        };
        let Torn {
            records,
            sacked_segments,
            ..
        } = &mut **torn;
        let mut note = |covered: &Record| {
            let len = covered.len();
            if covered.is_lost {
                self.lost -= len;
            }
            if covered.is_sacked {
                self.sacked -= len;
            } else {
                delivered.note(covered);
            }
            if covered.was_resent() {
                delivered.resent_bytes += len;
            }
        };
        records.remove_until(una, |record| {
            note(record);
            *sacked_segments -= u32::from(record.segments);
        });
        if let Some(place) = records.first()
            && let Some(&record) = records.get(place)
            && record.start < una
        {
            note(&Record { end: una, ..record });
            records.change(place, |r| r.start = una);
        }
        while torn.resent.front().is_some_and(|r| r.end <= una) {
            torn.resent.pop_front();
        }
        if torn.records.is_empty() {
            self.torn = None;
        }
    }

    /// Marks the data of one SACK block. Cuts fall on multiples of `mss` so that a peer cannot
    /// fragment the table (CVE-2019-11478).
    pub fn sack(&mut self, block: Range, mss: u64, delivered: &mut Delivered) {
        let waiting = self.whole.len();
        let Tearing { torn, sacked, lost } = self.tear(block.end);
        let mut at = block.start;
        while at < block.end
            && let Some(place) = torn.records.find(at)
            && let Some(&record) = torn.records.get(place)
            && record.start < block.end
        {
            at = record.end;
            if record.is_sacked {
                continue;
            }
            let (low, high) = inward(&record, block, mss);
            if low >= high {
                continue;
            }
            let is_cut = record.start < low || high < record.end;
            if is_cut && torn.records.len() + waiting >= RECORDS_MAX {
                continue;
            }
            let covered = Record {
                start: low,
                end: high,
                ..record
            };
            delivered.note(&covered);
            delivered.sacked += covered.len();
            *sacked += covered.len();
            if record.is_lost {
                *lost -= covered.len();
            }
            torn.carve(place, &record, covered, mss);
        }
    }

    /// Marks the bytes from `start` to `end` as retransmitted. RACK takes the transmission with the
    /// higher sequence numbers as the later of two at one moment (RFC 8985 6.2): a retransmission
    /// is dated a nanosecond after any other transmission.
    pub fn mark_resent(&mut self, range: Range, now: u64, stamp: Stamp) {
        let newest = self.last().map_or(0, |last| last.sent_at);
        let Tearing { torn, lost, .. } = self.tear(range.end);
        let now = torn.not_before(now).max(newest + 1);
        let mut next = torn.begin_at(range.start);
        while let Some(mut place) = next
            && let Some(record) = torn.records.get(place)
            && record.start < range.end
        {
            let (is_last, is_longer) = (record.end >= range.end, record.end > range.end);
            if !record.is_sacked {
                if is_longer {
                    place = torn.cut_at(place, range.end).0;
                }
                torn.records.change(place, |record| {
                    *lost -= if record.is_lost { record.len() } else { 0 };
                    record.note_resent(now, stamp);
                });
            }
            next = (!is_last).then(|| torn.records.next(place)).flatten();
        }
        torn.await_resent(range, now);
    }
}

impl Torn {
    /// Returns the time of a transmission at `now`: not before the latest retransmission.
    pub fn not_before(&self, now: u64) -> u64 {
        self.resent.back().map_or(now, |last| now.max(last.sent_at))
    }

    /// `covered`, a part of `record`, is SACKed: it becomes one with neighbours that are, and the
    /// rest stays.
    fn carve(&mut self, place: Cursor, record: &Record, covered: Record, mss: u64) {
        let mut covered = covered;
        covered.is_sacked = true;
        covered.is_lost = false;
        covered.segments = clamp(covered.len().div_ceil(mss));
        self.sacked_segments += u32::from(covered.segments);
        self.highest_sacked = self.highest_sacked.max(covered.end);
        let has_head = record.start < covered.start;
        let has_tail = covered.end < record.end;
        let tail = Record {
            start: covered.end,
            ..*record
        };
        if !has_tail {
            self.join_next(place, &mut covered);
        }
        let place = if has_head {
            self.records.insert_after(place, covered)
        } else if self.join_before(place, &covered) {
            if has_tail {
                self.records.replace(place, tail);
            } else {
                self.records.remove(place);
            }
            return;
        } else {
            self.records.replace(place, covered);
            place
        };
        if has_tail {
            self.records.insert_after(place, tail);
        }
    }

    /// Merges `covered` with its successor.
    fn join_next(&mut self, place: Cursor, covered: &mut Record) {
        if let Some(next) = self.records.next(place)
            && let Some(&after) = self.records.get(next)
            && after.is_sacked
        {
            self.sacked_segments -= join(covered, &after);
            self.records.remove(next);
        }
    }

    /// Merges `covered` into the record before `place` if that is SACKed.
    fn join_before(&mut self, place: Cursor, covered: &Record) -> bool {
        let Some(before) = self.records.before(place) else {
            return false;
        };
        let Some(&run) = self.records.get(before).filter(|r| r.is_sacked) else {
            return false;
        };
        let mut run = run;
        self.sacked_segments -= join(&mut run, covered);
        self.records.replace(before, run);
        true
    }

    /// As `cut_before`, where the record is likely to be the first that is lost.
    fn begin_at(&mut self, at: u64) -> Option<Cursor> {
        let lost = self.records.find_lost();
        let is_there = |place: &Cursor| self.records.get(*place).is_some_and(|r| r.start == at);
        lost.filter(is_there).or_else(|| self.cut_before(at))
    }

    /// The record of byte `at`, which begins there afterwards unless it is SACKed.
    fn cut_before(&mut self, at: u64) -> Option<Cursor> {
        let place = self.records.find(at)?;
        let record = self.records.get(place)?;
        if record.start >= at || record.is_sacked {
            return Some(place);
        }
        Some(self.cut_at(place, at).1)
    }

    /// Cuts so that a record ends at `at`, and returns it and its successor. At the ends of our own
    /// transmissions the table may grow beyond its limit, because they are no shorter than a
    /// segment.
    fn cut_at(&mut self, place: Cursor, at: u64) -> (Cursor, Cursor) {
        let Some(&record) = self.records.get(place) else {
            return (place, place);
        };
        let beyond = Record {
            start: at,
            ..record
        };
        let beyond = self.records.insert_after(place, beyond);
        (self.records.before(beyond).unwrap_or(place), beyond)
    }

    fn await_resent(&mut self, range: Range, now: u64) {
        if self.resent.len() >= RECORDS_MAX {
            // Its loss is then found by the timeout.
            self.resent.pop_front();
        }
        self.resent.push_back(Resent {
            start: range.start,
            end: range.end,
            sent_at: now,
        });
    }

    /// Lets loss detection examine the data of `flight` again, but once for each flight: a peer
    /// that alternately provokes losses and takes them back must not cause many walks with a few
    /// ACKs. After that only a timeout finds them.
    pub fn unmark_lost(&mut self, flight: Range) {
        let is_first = flight.start >= self.rewound_upto;
        if is_first {
            self.judged_upto = 0;
            self.rewound_upto = flight.end;
        }
        let mut again = VecDeque::new();
        self.records.change_all(true, |record| {
            if record.is_lost && record.was_resent() && is_first {
                again.push_back(*record);
            }
            record.is_lost = false;
        });
        for record in again {
            let range = Range {
                start: record.start,
                end: record.end,
            };
            self.await_resent(range, record.sent_at);
        }
    }

    pub fn forget_sacks(&mut self) {
        self.records.change_all(false, |record| {
            record.is_sacked = false;
            record.segments = 0;
        });
        self.sacked_segments = 0;
        self.highest_sacked = 0;
        self.judged_upto = 0;
    }

    /// Gives the bytes of which this is news.
    pub fn mark_lost_where(&mut self, lost: &mut u64, which: impl Fn(&Record) -> bool) -> u64 {
        let before = *lost;
        self.records.change_all(false, |record| {
            if record.is_pending() && which(record) {
                record.is_lost = true;
                *lost += record.len();
            }
        });
        *lost - before
    }

    pub fn mark_first_lost(&mut self, mss: u64, lost: &mut u64) {
        let first = |torn: &Torn| torn.records.iter().next().copied();
        let Some(whole) = first(self).filter(Record::is_pending) else {
            return;
        };
        self.cut_before(whole.start + mss);
        if let Some(place) = self.records.first() {
            self.condemn(place, lost);
        }
    }

    pub fn condemn(&mut self, place: Cursor, lost: &mut u64) {
        *lost += self.records.condemn(place);
    }

    pub fn find_lost(&mut self, max: u64) -> Option<Range> {
        let mut place = self.records.find_lost()?;
        let first = self.records.get(place)?;
        let (start, mut end) = (first.start, first.end);
        for _ in 1..WALK_MAX {
            if end - start >= max {
                break;
            }
            let next = self.records.next(place);
            let next = next.and_then(|next| Some((next, self.records.get(next)?)));
            let Some((next, record)) = next.filter(|(_, r)| r.is_lost) else {
                break;
            };
            (place, end) = (next, record.end);
        }
        Some(Range {
            start,
            end: end.min(start + max),
        })
    }
}

fn clamp(segments: u64) -> u8 {
    u8::try_from(segments).unwrap_or(u8::MAX)
}

/// `run` takes in a neighbour; both are SACKed. Gives the segments that no longer count because the
/// number is full.
fn join(run: &mut Record, other: &Record) -> u32 {
    let sum = u64::from(run.segments) + u64::from(other.segments);
    run.start = run.start.min(other.start);
    run.end = run.end.max(other.end);
    run.again = run.again.max(other.again);
    // Should the peer renege, the run is as young as its youngest part.
    if other.sent_at > run.sent_at {
        (run.sent_at, run.stamp) = (other.sent_at, other.stamp);
    }
    run.segments = clamp(sum);
    sum as u32 - u32::from(run.segments)
}

/// The part of `record` that `block` covers, rounded inwards to multiples of `mss` from the
/// record's start.
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
