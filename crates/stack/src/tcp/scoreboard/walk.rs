//! The records in the order of their transmission, in which RACK examines them (RFC 8985 6.2 step
//! 5).
//!
//! Records sent once are ordered alike by sequence and by time; retransmissions are listed as they
//! leave. Both are examined from the oldest on, and an examined record is not looked at again.

use super::table::Cursor;
use super::torn::{Resent, Tearing, Torn};
use super::{Scoreboard, WALK_MAX};

/// Most suspects beyond the first of which the latest is sought.
const SUSPECTS_MAX: usize = 16;

/// The verdict of loss detection on a record without ACK or SACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    Lost,
    /// Lost unless it is acknowledged or SACKed until then (nanoseconds).
    Suspect(u64),
    /// Record that was sent too late to be lost, as were its successors.
    Later,
}

impl Judgement {
    fn lost_at(self) -> Option<u64> {
        match self {
            Judgement::Suspect(at) => Some(at),
            Judgement::Lost | Judgement::Later => None,
        }
    }
}

/// The position of a walk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walk {
    pub newly_lost: u64,
    /// Time at which the latest suspect becomes lost (RFC 8985 6.2 step 5), as far as suspects are
    /// sought.
    pub recheck_at: Option<u64>,
    /// More records are left to judge: the walk goes on at once.
    pub is_unfinished: bool,
}

/// Reason why a part of a walk ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    /// All is judged.
    End,
    /// The records that follow are not lost yet; the time at which the latest becomes lost.
    Waiting(Option<u64>),
    /// [`WALK_MAX`].
    Limit,
}

impl Reached {
    fn recheck_at(self) -> Option<u64> {
        match self {
            Reached::Waiting(at) => at,
            Reached::End | Reached::Limit => None,
        }
    }
}

impl Scoreboard {
    /// Judges transmissions by their time and end, oldest first, and marks lost ones.
    pub fn walk(&mut self, mut judge: impl FnMut(u64, u64) -> Judgement) -> Walk {
        let before = self.lost;
        let mut left = WALK_MAX;
        let (mut resent, mut first) = (Reached::End, Reached::End);
        if let Some(torn) = &mut self.torn {
            resent = torn.judge_resent(&mut left, &mut self.lost, &mut judge);
            first = torn.judge_first(&mut left, &mut self.lost, &mut judge);
        }
        if first == Reached::End {
            first = self.judge_whole(&mut left, &mut judge);
        }
        Walk {
            newly_lost: self.lost - before,
            recheck_at: resent.recheck_at().max(first.recheck_at()),
            is_unfinished: resent == Reached::Limit || first == Reached::Limit,
        }
    }

    fn judge_whole(
        &mut self,
        left: &mut usize,
        judge: &mut impl FnMut(u64, u64) -> Judgement,
    ) -> Reached {
        while let Some(first) = self.whole.front() {
            if *left == 0 {
                return Reached::Limit;
            }
            *left -= 1;
            let end = first.end;
            match judge(first.sent_at, end) {
                Judgement::Lost => {
                    let Tearing { torn, lost, .. } = self.tear(end);
                    if let Some(place) = torn.records.find(end - 1) {
                        torn.condemn(place, lost);
                    }
                    torn.judged_upto = end;
                }
                Judgement::Suspect(at) => {
                    let others = self.whole.iter().take(SUSPECTS_MAX + 1).skip(1).rev();
                    let latest = others.filter_map(|r| judge(r.sent_at, r.end).lost_at());
                    return Reached::Waiting(latest.max().max(Some(at)));
                }
                Judgement::Later => return Reached::Waiting(None),
            }
        }
        Reached::End
    }
}

impl Torn {
    /// Judges the records that were sent once.
    fn judge_first(
        &mut self,
        left: &mut usize,
        lost: &mut u64,
        judge: &mut impl FnMut(u64, u64) -> Judgement,
    ) -> Reached {
        let mut next = self.records.find(self.judged_upto);
        while let Some(place) = next
            && let Some(record) = self.records.get(place)
        {
            if *left == 0 {
                return Reached::Limit;
            }
            *left -= 1;
            let end = record.end;
            if record.waits_for_first() {
                match judge(record.sent_at, end) {
                    Judgement::Lost => self.condemn(place, lost),
                    Judgement::Suspect(at) => {
                        let latest = self.find_latest_first(place, judge);
                        return Reached::Waiting(latest.max(Some(at)));
                    }
                    Judgement::Later => return Reached::Waiting(None),
                }
            }
            self.judged_upto = end;
            next = self.records.next(place);
        }
        Reached::End
    }

    /// Time at which the latest of the suspects behind the oldest becomes lost.
    fn find_latest_first(
        &self,
        oldest: Cursor,
        judge: &mut impl FnMut(u64, u64) -> Judgement,
    ) -> Option<u64> {
        let behind = self.records.after(oldest, SUSPECTS_MAX).rev();
        let mut waiting = behind.filter(|record| record.waits_for_first());
        waiting.find_map(|record| judge(record.sent_at, record.end).lost_at())
    }

    /// Retransmissions.
    fn judge_resent(
        &mut self,
        left: &mut usize,
        lost: &mut u64,
        judge: &mut impl FnMut(u64, u64) -> Judgement,
    ) -> Reached {
        let mut near = None;
        while let Some(&oldest) = self.resent.front() {
            if *left == 0 {
                return Reached::Limit;
            }
            *left -= 1;
            match judge(oldest.sent_at, oldest.start) {
                Judgement::Later => return Reached::Waiting(None),
                Judgement::Suspect(_) => match self.find_latest_resent(judge) {
                    Some(at) => return Reached::Waiting(Some(at)),
                    None => *left = left.saturating_sub(self.forget_suspects(judge)),
                },
                Judgement::Lost => {
                    let missing = self.find_resent(&oldest, near);
                    if missing.is_some_and(|(_, end)| judge(oldest.sent_at, end) != Judgement::Lost)
                    {
                        return Reached::Waiting(None);
                    }
                    if let Some((place, _)) = missing {
                        near = self.records.next(place);
                    }
                    self.condemn_oldest(missing, lost);
                }
            }
        }
        Reached::End
    }

    /// The oldest retransmission is lost, as far as it is `missing`.
    fn condemn_oldest(&mut self, missing: Option<(Cursor, u64)>, lost: &mut u64) {
        let mut judged = u64::MAX;
        if let Some((place, end)) = missing {
            self.condemn(place, lost);
            judged = end;
        }
        if let Some(oldest) = self.resent.front_mut() {
            oldest.start = judged;
            if oldest.start >= oldest.end {
                self.resent.pop_front();
            }
        }
    }

    /// Time at which the latest suspect becomes lost.
    fn find_latest_resent(&self, judge: &mut impl FnMut(u64, u64) -> Judgement) -> Option<u64> {
        let oldest = self.resent.iter().take(SUSPECTS_MAX + 1);
        let mut suspects = oldest.rev().filter_map(|resent| {
            let at = judge(resent.sent_at, resent.start).lost_at()?;
            Some((resent, at))
        });
        let (_, at) = suspects.find(|(resent, _)| self.find_resent(resent, None).is_some())?;
        Some(at)
    }

    /// Nothing of the oldest suspects is missing any more. Gives how many there were.
    fn forget_suspects(&mut self, judge: &mut impl FnMut(u64, u64) -> Judgement) -> usize {
        let is_suspect = |r: &&Resent| judge(r.sent_at, r.start).lost_at().is_some();
        let oldest = self.resent.iter().take(SUSPECTS_MAX + 1);
        let count = oldest.take_while(is_suspect).count();
        self.resent.drain(..count);
        count
    }

    /// Returns the first record of a retransmission that was neither acknowledged nor SACKed since.
    fn find_resent(&self, resent: &Resent, near: Option<Cursor>) -> Option<(Cursor, u64)> {
        let mut next = self.records.find_near(near, resent.start);
        for _ in 0..WALK_MAX {
            let place = next?;
            let record = self.records.get(place)?;
            if record.start >= resent.end {
                return None;
            }
            if record.is_pending() && record.sent_at == resent.sent_at {
                return Some((place, record.end));
            }
            next = self.records.next(place);
        }
        None
    }
}
