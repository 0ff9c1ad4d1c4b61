//! A connection that is moving from one engine to another, with its program and its rings.

use slipstack_stack::ConnectionImage;

use crate::program::Program;
use crate::streams::Streams;

#[derive(Debug)]
pub struct MovingConnection {
    pub image: ConnectionImage,
    pub program: Program,
    pub streams: Streams,
}
