//! The state in which a segment, a timer or a call leaves a connection.

use crate::error::Reason;

/// Outcome for a connection: it ends, or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Alive,
    /// The streams of both sides are done, or no user is left.
    Closed,
    /// RFC 9293 3.6.1: this side closed first.
    TimeWait,
    Failed(Reason),
    /// Data for a program that has closed: the segment is answered with a reset.
    Refused,
}
