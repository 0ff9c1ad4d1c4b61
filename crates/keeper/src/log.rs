//! Events of a keeper and of what it starts, for whoever subscribes to `tracing`.
//!
//! An error is a state that somebody has to mend, a warning is something that was given up, and
//! informational events tell who comes and goes, and those for debugging have each request of a
//! program. There is none for a frame.

/// Target of what rules of the packet filter with `log` have matched: an operator has asked for
/// these lines, so that they are written at every level but `off`.
pub const FILTER_TARGET: &str = "ipfw";
