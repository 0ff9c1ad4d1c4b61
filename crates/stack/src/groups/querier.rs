//! The state that a host keeps of multicast queriers.
//!
//! RFC 3376 7.2.1, RFC 3810 8.2.1.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::time::Instant;

/// RFC 3376 8.1, RFC 3810 9.1.
const ROBUSTNESS: u8 = 2;
/// RFC 3376 8.12, RFC 3810 9.12: robustness times query interval, and one response.
const OLD_QUERIER_NS: u64 = 260_000_000_000;

/// State of the link's queriers.
#[derive(Debug, Default)]
pub(super) struct Querier {
    /// Times until which a querier of version 1, and of version 2, is assumed to exist. MLDv1 is
    /// the older of two and is stored as version 2.
    old_until: [Instant; 2],
    robustness: u8,
    /// Time at which a question about all groups is to be answered.
    general_at: Option<Instant>,
}

impl Querier {
    pub fn robustness(&self) -> u8 {
        match self.robustness {
            0 => ROBUSTNESS,
            said => said,
        }
    }

    pub fn general_at(&self) -> Option<Instant> {
        self.general_at
    }

    /// Returns the older version to be used, if any.
    pub fn version(&self, now: Instant) -> Option<u8> {
        let is_there = |until: Instant| now < until;
        match self.old_until.map(is_there) {
            [true, _] => Some(1),
            [_, true] => Some(2),
            _ => None,
        }
    }

    /// Records a query of this older version or of the newest; returns whether another version is
    /// to be used from now on, which cancels pending reports to all.
    pub fn note(&mut self, now: Instant, old: Option<u8>, robustness: u8) -> bool {
        let before = self.version(now);
        match old {
            Some(version) => {
                self.old_until[usize::from(version - 1)] = now.plus_nanos(OLD_QUERIER_NS);
            }
            None => self.robustness = robustness,
        }
        let is_changed = self.version(now) != before;
        if is_changed {
            self.general_at = None;
        }
        is_changed
    }

    /// Answers about all groups at this time.
    pub fn answer_general(&mut self, at: Instant) {
        self.general_at = Some(at);
    }

    /// Returns `true`, once, if an answer about all groups is due.
    pub fn take_general(&mut self, now: Instant) -> bool {
        self.general_at.take_if(|at| *at <= now).is_some()
    }
}

/// A query of either family. `old`: the version, if it is an older one.
pub(super) struct Asked {
    pub old: Option<u8>,
    /// `None`: about all groups.
    pub group: Option<IpAddr>,
    pub sources: Vec<IpAddr>,
    pub response_max_ms: u32,
    pub robustness: u8,
}
