//! Several interfaces as one device: a slot consists of one slot of each interface.
//!
//! A frame carries its interface (port) in the number of its link ([`slipstack_wire::LinkId`]), and
//! a sent frame leaves by the port of its link. All ports share one steering table, so that a flow
//! has the same slot whichever port it arrives by.

mod backend;
mod slot;

pub(crate) use backend::{Joined, JoinedPart, join};

#[cfg(test)]
mod tests;
