//! Record of one transmission, and the summary of an ACK over several.

use crate::tcp::delivery::Stamp;

/// Was it sent more than once?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Again {
    No,
    /// Sent by another stack, before the connection came here: the time is unknown.
    Elsewhere,
    /// As a probe.
    Probe,
    /// Record that was thought lost.
    Lost,
}

/// One transmission, or neighbours that are all SACKed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub start: u64,
    pub end: u64,
    /// Time at which it was last sent, in nanoseconds.
    pub sent_at: u64,
    pub stamp: Stamp,
    pub is_sacked: bool,
    /// Thought lost and not yet sent again.
    pub is_lost: bool,
    pub again: Again,
    /// Segments, once it is SACKed; stays at the largest number that fits.
    pub segments: u8,
}

impl Record {
    pub fn new(start: u64, end: u64, sent_at: u64, stamp: Stamp) -> Record {
        Record {
            start,
            end,
            sent_at,
            stamp,
            is_sacked: false,
            is_lost: false,
            again: Again::No,
            segments: 0,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Returns whether this stack has sent the range more than once.
    pub(super) fn was_resent(&self) -> bool {
        self.again > Again::Elsewhere
    }

    /// Returns whether the record was sent once, and neither acknowledged nor SACKed.
    pub(super) fn waits_for_first(&self) -> bool {
        self.is_pending() && !self.was_resent()
    }

    /// Notes that the record leaves again.
    pub(super) fn note_resent(&mut self, now: u64, stamp: Stamp) {
        self.again = if self.is_lost {
            Again::Lost
        } else {
            self.again.max(Again::Probe)
        };
        self.is_lost = false;
        self.sent_at = now;
        self.stamp = stamp;
    }

    /// Returns whether the record was neither acknowledged nor SACKed since it was last sent.
    pub(super) fn is_pending(&self) -> bool {
        !self.is_sacked && !self.is_lost
    }
}

/// Data delivered by an ACK, for the estimators and loss detection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivered {
    /// Bytes newly delivered, cumulatively or selectively.
    pub bytes: u64,
    /// Bytes that were SACKed.
    pub sacked: u64,
    /// Bytes that the cumulative ACK covered and that had been sent again.
    pub resent_bytes: u64,
    /// Transmission time of the newest delivered record that was sent once (Karn).
    pub clean_sent_at: Option<u64>,
    /// RFC 8985 6.2 step 2: the most recently sent record among the delivered ones, with its end.
    pub newest: Option<Newest>,
    /// RFC 8985 6.2 step 3: a record below the highest delivered one was delivered late, without
    /// retransmission.
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
    pub(super) fn note(&mut self, record: &Record) {
        self.bytes += record.len();
        if record.again == Again::No {
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
                was_resent: record.again != Again::No,
                stamp: record.stamp,
            });
        }
    }
}
