//! The table compared with a naive one, and its corner cases (RFC 6675 3, RFC 2018 8).

use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

const MSS: u64 = 10;

impl Scoreboard {
    fn check(&self) {
        let sum = |f: fn(&Record) -> bool| {
            let chosen = self.records().filter(|r| f(r));
            chosen.map(Record::len).sum::<u64>()
        };
        assert_eq!(self.sacked, sum(|r| r.is_sacked));
        assert_eq!(self.lost, sum(|r| r.is_lost));
        let segments: u32 = self.records().map(|r| u32::from(r.segments)).sum();
        assert_eq!(self.sacked_segments(), segments);
        assert!(
            self.records()
                .all(|r| r.start < r.end && !(r.is_sacked && r.is_lost))
        );
        let mut neighbours = self.records().zip(self.records().skip(1));
        assert!(neighbours.all(|(a, b)| a.end == b.start && !(a.is_sacked && b.is_sacked)));
        assert!(self.finds_all_lost());
        let (first, last) = (self.records().next(), self.records().next_back());
        if let (Some(first), Some(last)) = (first, last) {
            assert_eq!((first.start, last.end), (self.start, self.end));
        } else {
            assert!(self.is_empty());
        }
    }
}

/// Corruption, for tests of the audit.
impl Scoreboard {
    pub(in crate::tcp) fn whole_mut(&mut self) -> &mut VecDeque<Record> {
        &mut self.whole
    }

    /// Returns the sums of SACKed and lost bytes.
    pub(in crate::tcp) fn sums_mut(&mut self) -> (&mut u64, &mut u64) {
        (&mut self.sacked, &mut self.lost)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Push(u64),
    Ack(u64),
    Sack(u64, u64),
    /// Marks as lost the data sent this many steps ago or earlier.
    Lose(u64),
    Resend(u64),
    FirstLost,
    Timeout,
    Undo,
    Renege,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1u64..8).prop_map(Step::Push),
        3 => (0u64..12).prop_map(Step::Ack),
        6 => (0u64..40, 1u64..10).prop_map(|(a, b)| Step::Sack(a, b)),
        4 => (0u64..20).prop_map(Step::Lose),
        4 => (1u64..6).prop_map(|n| Step::Resend(n * MSS)),
        1 => Just(Step::FirstLost),
        1 => Just(Step::Timeout),
        1 => Just(Step::Undo),
        1 => Just(Step::Renege),
    ];
    prop::collection::vec(step, 1..160)
}

/// One byte in the naive table.
#[derive(Clone, Copy, Default)]
struct Byte {
    is_sacked: bool,
    is_lost: bool,
    sent_at: u64,
}

/// The table and its model.
#[derive(Default)]
struct Pair {
    board: Scoreboard,
    bytes: Vec<Byte>,
    una: u64,
    /// Retransmissions that an undo restored follow younger ones in the list, and after a second
    /// undo nothing is examined again: a walk may miss some.
    is_undone: bool,
}

impl Pair {
    fn nxt(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn live(&mut self) -> &mut [Byte] {
        &mut self.bytes[self.una as usize..]
    }

    fn range(&mut self, range: Range) -> &mut [Byte] {
        &mut self.bytes[range.start as usize..range.end as usize]
    }

    fn step(&mut self, clock: u64, step: Step) {
        let mut delivered = Delivered::default();
        match step {
            Step::Push(segments) => {
                let (start, end) = (self.nxt(), self.nxt() + segments * MSS);
                self.board.push(start, end, clock, Stamp::default());
                let byte = Byte {
                    sent_at: clock,
                    ..Byte::default()
                };
                self.bytes.resize(end as usize, byte);
            }
            Step::Ack(segments) => {
                self.una = (self.una + segments * MSS).min(self.nxt());
                self.board.acknowledge(self.una, &mut delivered);
            }
            Step::Sack(from, len) => {
                let start = self.una + from * MSS;
                let end = (start + len * MSS).min(self.nxt());
                if start < end {
                    self.board.sack(Range { start, end }, MSS, &mut delivered);
                    for byte in self.range(Range { start, end }) {
                        (byte.is_sacked, byte.is_lost) = (true, false);
                    }
                }
            }
            Step::Lose(ago) => self.lose(clock.saturating_sub(ago)),
            Step::Resend(max) => self.resend(clock, max),
            Step::FirstLost => {
                if self.live().first().is_some_and(|b| !b.is_sacked) {
                    self.board.mark_first_lost(MSS);
                    let first = self.board.records().next().unwrap();
                    let end = first.end;
                    let start = self.una;
                    self.range(Range { start, end })
                        .iter_mut()
                        .for_each(|b| b.is_lost = true);
                }
            }
            Step::Timeout => {
                self.board.mark_all_lost();
                let all = self.live().iter_mut();
                all.for_each(|b| b.is_lost = !b.is_sacked);
            }
            Step::Undo => {
                self.is_undone = true;
                self.board.unmark_lost();
                self.live().iter_mut().for_each(|b| b.is_lost = false);
            }
            Step::Renege => {
                self.board.forget_sacks();
                self.board.mark_all_lost();
                for byte in self.live() {
                    (byte.is_sacked, byte.is_lost) = (false, true);
                }
            }
        }
    }

    fn lose(&mut self, before: u64) {
        let judge = |sent_at, _| {
            if sent_at < before {
                Judgement::Lost
            } else {
                Judgement::Later
            }
        };
        while self.board.walk(judge).is_unfinished {}
        let records: Vec<Record> = self.board.records().copied().collect();
        for record in records {
            let is_undone = self.is_undone;
            for byte in self.range(Range {
                start: record.start,
                end: record.end,
            }) {
                let is_due = byte.is_lost || !byte.is_sacked && byte.sent_at < before;
                assert!(is_due == record.is_lost || is_undone && !record.is_lost);
                byte.is_lost = record.is_lost;
            }
        }
    }

    fn resend(&mut self, clock: u64, max: u64) {
        let first = self.live().iter().position(|b| b.is_lost);
        let Some(range) = self.board.find_lost(max) else {
            assert_eq!(first, None);
            return;
        };
        assert_eq!(Some((range.start - self.una) as usize), first);
        self.board.mark_resent(range, clock, Stamp::default());
        for byte in self.range(range) {
            assert!(byte.is_lost);
            (byte.is_lost, byte.sent_at) = (false, clock);
        }
    }

    fn compare(&mut self) {
        self.board.check();
        let count = |bytes: &[Byte], f: fn(&Byte) -> bool| bytes.iter().filter(|b| f(b)).count();
        let (sacked, lost) = (self.board.sacked_bytes(), self.board.lost_bytes());
        let in_flight = self.board.in_flight();
        let live = self.live();
        assert_eq!(sacked as usize, count(live, |b| b.is_sacked));
        assert_eq!(lost as usize, count(live, |b| b.is_lost));
        assert_eq!(in_flight as usize, live.len() - (sacked + lost) as usize);
    }
}

proptest! {
    #[test]
    fn the_table_equals_a_table_of_bytes(steps in steps()) {
        let mut pair = Pair::default();
        for (clock, step) in steps.into_iter().enumerate() {
            pair.step(clock as u64 + 1, step);
            pair.compare();
        }
    }
}

#[test]
fn an_undo_is_judged_again_once_for_each_flight() {
    let mut board = with_holes(8);
    for expected in [4 * MSS, 4 * MSS, 0] {
        assert_eq!(board.walk(|_, _| Judgement::Lost).newly_lost, expected);
        board.unmark_lost();
        board.check();
    }
    board.push(8 * MSS, 10 * MSS, 2, Stamp::default());
    board.acknowledge(8 * MSS, &mut Delivered::default());
    assert_eq!(board.walk(|_, _| Judgement::Lost).newly_lost, 2 * MSS);
    board.unmark_lost();
    assert_eq!(board.walk(|_, _| Judgement::Lost).newly_lost, 2 * MSS);
}

/// Every second of `segments` is SACKed.
fn with_holes(segments: u64) -> Scoreboard {
    let mut board = Scoreboard::default();
    board.push(0, segments * MSS, 1, Stamp::default());
    for i in 0..segments / 2 {
        let start = (2 * i + 1) * MSS;
        let end = start + MSS;
        board.sack(Range { start, end }, MSS, &mut Delivered::default());
    }
    board
}

#[test]
fn neighbours_that_are_sacked_become_one() {
    let mut board = with_holes(400);
    assert_eq!(board.records().count(), 400);
    let all = Range {
        start: MSS,
        end: 400 * MSS,
    };
    board.sack(all, MSS, &mut Delivered::default());
    board.check();
    let records: Vec<_> = board.records().map(|r| (r.end, r.is_sacked)).collect();
    assert_eq!(records, [(MSS, false), (400 * MSS, true)]);
}

#[test]
fn holes_are_bounded_and_later_ones_are_recorded_once_they_grow() {
    let segments = 2 * RECORDS_MAX as u64;
    let mut board = with_holes(segments);
    board.check();
    assert!(board.is_full() && board.records().count() <= RECORDS_MAX + 1);
    let all = Range {
        start: MSS,
        end: segments * MSS,
    };
    board.sack(all, MSS, &mut Delivered::default());
    board.check();
    assert_eq!(board.sacked_bytes(), (segments - 1) * MSS);
    assert!(!board.is_full());
}

#[test]
fn only_retransmitted_segments_get_a_new_send_time() {
    // RFC 8985 6.1.
    let mut board = Scoreboard::default();
    for n in 0..4 {
        board.push(n * MSS, (n + 1) * MSS, n, Stamp::default());
    }
    let second = Range {
        start: MSS,
        end: 2 * MSS,
    };
    board.mark_one_lost(second);
    board.mark_resent(second, 9, Stamp::default());
    let sent = |record: &Record| (record.start / MSS, record.sent_at, record.was_resent());
    let sent: Vec<_> = board.records().map(sent).collect();
    let want = [(0, 0, false), (1, 9, true), (2, 2, false), (3, 3, false)];
    assert_eq!(sent, want);
}

#[test]
fn a_walk_over_many_losses_goes_on_where_it_stopped() {
    let mut board = with_holes(4 * WALK_MAX as u64);
    let mut calls = 0;
    loop {
        let mut judged = 0;
        let walk = board.walk(|_, _| {
            judged += 1;
            Judgement::Lost
        });
        calls += 1;
        assert!(judged <= WALK_MAX);
        if !walk.is_unfinished {
            break;
        }
    }
    assert_eq!(board.in_flight(), 0);
    assert_eq!(calls, 4);
    assert_eq!(board.walk(|_, _| unreachable!()).newly_lost, 0);
}

#[test]
fn a_tail_that_is_sent_again_does_not_hide_losses_before_it() {
    let mut board = Scoreboard::default();
    for i in 0..5 {
        board.push(i * MSS, (i + 1) * MSS, i, Stamp::default());
    }
    board.walk(|sent_at, _| {
        if sent_at == 0 {
            Judgement::Lost
        } else {
            Judgement::Later
        }
    });
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

#[test]
fn losses_of_a_large_flight_are_found_in_order() {
    let mut board = with_holes(1_000);
    while board.walk(|_, _| Judgement::Lost).is_unfinished {}
    for hole in 0..500 {
        let start = 2 * hole * MSS;
        let end = start + MSS;
        assert_eq!(board.find_lost(MSS), Some(Range { start, end }));
        board.mark_resent(Range { start, end }, 9, Stamp::default());
        if hole % 100 == 99 {
            board.acknowledge((hole - 50) * 2 * MSS, &mut Delivered::default());
        }
        board.check();
    }
    assert_eq!(board.find_lost(MSS), None);
}

#[test]
fn the_timer_waits_for_the_latest_missing_retransmission() {
    // RFC 8985 6.2 step 5.
    let mut board = with_holes(40);
    while board.walk(|_, _| Judgement::Lost).is_unfinished {}
    for sent_at in 100..120 {
        let hole = board.find_lost(MSS).unwrap();
        board.mark_resent(hole, sent_at, Stamp::default());
    }
    let mut recheck_after = |arrived: core::ops::Range<u64>| {
        for hole in arrived {
            let start = 2 * hole * MSS;
            let end = start + MSS;
            board.sack(Range { start, end }, MSS, &mut Delivered::default());
        }
        let walk = board.walk(|sent_at, _| Judgement::Suspect(sent_at + 1_000));
        walk.recheck_at
    };
    // The end of the seventeen oldest records.
    assert_eq!(recheck_after(0..0), Some(1_116));
    assert_eq!(recheck_after(15..17), Some(1_114));
    assert_eq!(recheck_after(0..15), Some(1_119));
    assert_eq!(recheck_after(17..20), None);
}
