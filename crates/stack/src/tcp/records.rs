//! Ends of records in the stream that is sent (MSG_EOR): the bytes behind one do not join the
//! segment of those before it, which does not wait for more (Linux: `eor` of a segment's buffer).
//!
//! A retransmission may join what was sent in two segments.

use alloc::collections::VecDeque;

use super::connection::Connection;

/// Ends that are kept at most; records beyond them are joined.
const RECORDS_MAX: usize = 4096;

/// Ends of records, in order.
#[derive(Debug, Default)]
pub struct Records(VecDeque<u64>);

impl Records {
    /// Adds an end, and drops those of bytes that have been sent.
    fn add(&mut self, end: u64, nxt: u64) {
        while self.0.front().is_some_and(|end| *end <= nxt) {
            self.0.pop_front();
        }
        if self.0.len() < RECORDS_MAX && self.0.back().is_none_or(|last| *last < end) {
            self.0.push_back(end);
        }
    }

    fn next(&self, nxt: u64) -> Option<u64> {
        let sent = self.0.partition_point(|end| *end <= nxt);
        self.0.get(sent).copied()
    }
}

/// Returns whether a record ends among the unsent bytes.
pub fn is_any(conn: &Connection) -> bool {
    let flight = conn.flight.as_ref();
    let records = flight.and_then(|flight| flight.records.as_ref());
    records.is_some_and(|records| records.next(conn.snd.nxt).is_some())
}

/// Ends a record before the offset `upto`, which lies beyond all earlier ones.
pub fn end(conn: &mut Connection, upto: u64) {
    let nxt = conn.snd.nxt;
    if upto <= nxt {
        return;
    }
    let records = conn.flight_mut().records.get_or_insert_default();
    records.add(upto, nxt);
    conn.opts.manner.set_records(true);
}

/// Returns the number of unsent bytes of the next record, if other bytes follow it and it is not
/// longer than `most`: it does not wait for more.
#[cold]
pub fn next(conn: &Connection, most: u64) -> Option<u64> {
    let snd = &conn.snd;
    let end = conn.flight.as_ref()?.records.as_ref()?.next(snd.nxt)?;
    let rest = end - snd.nxt;
    (end < snd.written && rest <= most).then_some(rest)
}
