//! Limits that several filters share.

use core::sync::atomic::{AtomicU32, Ordering};

use super::flows::{SYN_ACK, at, keeping, limit, pair};
use super::*;

/// Counts whatever is counted, as if all were alike.
#[derive(Debug, Default)]
struct Counter {
    all: Arc<AtomicU32>,
    own: AtomicU32,
}

impl SharedLimits for Counter {
    fn enter(&self, _: u64) -> Option<u32> {
        self.own.fetch_add(1, Ordering::Relaxed);
        Some(self.all.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn leave(&self, _: u64) {
        self.own.fetch_sub(1, Ordering::Relaxed);
        self.all.fetch_sub(1, Ordering::Relaxed);
    }

    fn clear(&self) {
        let own = self.own.swap(0, Ordering::Relaxed);
        self.all.fetch_sub(own, Ordering::Relaxed);
    }
}

fn two(max: u32) -> [Filter; 2] {
    let all = Arc::new(AtomicU32::new(0));
    [(); 2].map(|()| {
        let mut filter = keeping(limit(max));
        let all = all.clone();
        let own = AtomicU32::new(0);
        let board = Board::new(Arc::new(Counter { all, own }), [1, 2]);
        filter.states_mut().share(Some(board));
        filter
    })
}

#[test]
fn a_limit_of_flows_is_shared_by_the_filters_of_two_stacks() {
    let [mut one, mut two] = two(2);
    let syn = |port| pair(port, TcpFlags::SYN, SYN_ACK).0;
    assert_eq!(one.verdict(at(1), &syn(4000)), Verdict::Pass);
    assert_eq!(two.verdict(at(1), &syn(4001)), Verdict::Pass);
    assert_eq!(one.verdict(at(1), &syn(4002)), Verdict::Drop);
    assert_eq!(two.verdict(at(1), &syn(4003)), Verdict::Drop);
    // An engine to which no packet comes looks for expired flows by itself.
    assert!(two.next_sweep().is_some_and(|due| due <= at(22)));
    two.states_mut().sweep(at(22), |_, _| true);
    assert_eq!(one.verdict(at(5), &syn(4002)), Verdict::Pass);
    assert_eq!(two.next_sweep(), None);
}

#[test]
fn a_flow_that_goes_to_another_filter_is_counted_there_alone() {
    let [mut one, mut two] = two(1);
    let (syn, _) = pair(4000, TcpFlags::SYN, SYN_ACK);
    let (ack, _) = pair(4000, TcpFlags::ACK, TcpFlags::ACK);
    let (other, _) = pair(4001, TcpFlags::SYN, SYN_ACK);
    assert_eq!(one.verdict(at(1), &syn), Verdict::Pass);
    one.states_mut().hand_over(&syn);
    assert!(two.admits(at(1), &syn), "the segment was passed on");
    assert!(!two.admits(at(1), &other));
    assert_eq!(one.verdict(at(1), &other), Verdict::Drop);
    assert_eq!(one.verdict(at(1), &ack), Verdict::Pass, "it was on its way");
    two.states_mut().hand_over(&syn);
    one.adopt(at(2), &[syn]);
    assert_eq!(two.verdict(at(2), &other), Verdict::Drop);
    assert_eq!(one.verdict(at(2), &ack), Verdict::Pass);
}
