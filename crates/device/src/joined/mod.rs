//! Several interfaces as one device: a slot is made of a slot of each.
//!
//! A frame that comes by a port has the port in the number of its link
//! ([`slipstack_wire::LinkId`]), and a sent frame leaves by the port of its link. One steering is
//! behind all ports, so that a flow has the same slot wherever it comes in.

mod backend;
mod slot;

pub(crate) use backend::{Joined, JoinedPart, join};

#[cfg(test)]
mod tests;
