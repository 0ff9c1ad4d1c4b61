//! The records in the order of their transmission, which is how RACK looks at them (RFC 8985 6.2 step 5).
//!
//! What was sent once lies in order of sequence and of time alike; retransmissions are listed as they leave. Both are
//! judged from the oldest on, and what has been judged is not looked at again.

use super::table::Place;
use super::torn::{Resent, Torn};
use super::{Scoreboard, WALK_MAX};

/// Most suspects beyond the first that are asked when they become lost.
const SUSPECTS_MAX: usize = 16;

/// What loss detection says of a record of which nothing has been heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    Lost,
    /// It becomes so if nothing is heard of it in time.
    Suspect,
    /// It was sent too late to be missed, and so was what follows.
    Later,
}

/// How far a walk came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walk {
    pub newly_lost: u64,
    /// There is more to judge: walk on at once.
    pub is_unfinished: bool,
}

/// Why a part of a walk ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    /// All is judged.
    End,
    /// What follows is not lost yet.
    Waiting,
    /// [`WALK_MAX`].
    Limit,
}

impl Scoreboard {
    /// Judges what was sent by its time and its end, oldest first, and marks what is lost.
    pub fn walk(&mut self, mut judge: impl FnMut(u64, u64) -> Judgement) -> Walk {
        let before = self.lost;
        let mut left = WALK_MAX;
        let mut reached = Reached::End;
        let mut is_cut = false;
        if let Some(torn) = &mut self.torn {
            let resent = torn.judge_resent(&mut left, &mut self.lost, &mut judge);
            reached = torn.judge_first(&mut left, &mut self.lost, &mut judge);
            is_cut = resent == Reached::Limit;
        }
        if reached == Reached::End {
            reached = self.judge_whole(&mut left, &mut judge);
        }
        Walk {
            newly_lost: self.lost - before,
            is_unfinished: is_cut || reached == Reached::Limit,
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
                    let (torn, _, lost) = self.tear(end);
                    if let Some(place) = torn.records.find(end - 1) {
                        torn.condemn(place, lost);
                    }
                    torn.judged_upto = end;
                }
                Judgement::Suspect => {
                    let others = self.whole.iter().skip(1).take(SUSPECTS_MAX);
                    let mut judged = others.map(|r| judge(r.sent_at, r.end));
                    let _ = judged.find(|j| *j != Judgement::Suspect);
                    return Reached::Waiting;
                }
                Judgement::Later => return Reached::Waiting,
            }
        }
        Reached::End
    }
}

impl Torn {
    /// What was sent once.
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
            if !record.was_resent() && record.is_pending() {
                match judge(record.sent_at, record.end) {
                    Judgement::Lost => {}
                    Judgement::Suspect => {
                        self.ask_first(place, judge);
                        return Reached::Waiting;
                    }
                    Judgement::Later => return Reached::Waiting,
                }
                self.judged_upto = record.end;
                self.condemn(place, lost);
            } else {
                self.judged_upto = record.end;
            }
            next = self.records.next(place);
        }
        Reached::End
    }

    /// When the suspects behind the oldest become lost.
    fn ask_first(&self, oldest: Place, judge: &mut impl FnMut(u64, u64) -> Judgement) {
        let mut next = self.records.next(oldest);
        for _ in 0..SUSPECTS_MAX {
            let Some(record) = next.and_then(|place| self.records.get(place)) else {
                break;
            };
            if !record.was_resent()
                && record.is_pending()
                && judge(record.sent_at, record.end) != Judgement::Suspect
            {
                break;
            }
            next = next.and_then(|place| self.records.next(place));
        }
    }

    /// Retransmissions.
    fn judge_resent(
        &mut self,
        left: &mut usize,
        lost: &mut u64,
        judge: &mut impl FnMut(u64, u64) -> Judgement,
    ) -> Reached {
        while let Some(&oldest) = self.resent.front() {
            if *left == 0 {
                return Reached::Limit;
            }
            *left -= 1;
            let Some((place, end)) = self.find_resent(&oldest) else {
                self.resent.pop_front();
                continue;
            };
            match judge(oldest.sent_at, end) {
                Judgement::Lost => {
                    self.condemn(place, lost);
                    if let Some(front) = self.resent.front_mut() {
                        front.start = end;
                    }
                }
                Judgement::Suspect => {
                    self.ask_resent(judge);
                    return Reached::Waiting;
                }
                Judgement::Later => return Reached::Waiting,
            }
        }
        Reached::End
    }

    /// When the suspects behind the oldest become lost.
    fn ask_resent(&self, judge: &mut impl FnMut(u64, u64) -> Judgement) {
        for resent in self.resent.iter().skip(1).take(SUSPECTS_MAX) {
            if let Some((_, end)) = self.find_resent(resent)
                && judge(resent.sent_at, end) != Judgement::Suspect
            {
                break;
            }
        }
    }

    /// The first record of a retransmission of which nothing has been heard since.
    fn find_resent(&self, resent: &Resent) -> Option<(Place, u64)> {
        let mut next = self.records.find(resent.start);
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
