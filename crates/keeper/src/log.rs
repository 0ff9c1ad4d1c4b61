//! Log events of the keeper and of processes it starts, for subscribers to `tracing`.
//!
//! An error is a state that an operator has to repair, a warning is work that was given up,
//! informational events report clients that come and go, and debug events each request of a
//! program. No event is logged per frame.

/// Target of matches of packet filter rules with `log`: an operator has asked for these lines, so
/// they are written at every level but `off`.
pub const FILTER_TARGET: &str = "ipfw";
