//! Received bytes in their ring.

use std::borrow::Cow;
use std::net::SocketAddr;

/// Bytes that wait to be consumed, in stream order: the second piece is empty unless they wrap
/// around the end of the ring.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received<'a> {
    first: &'a [u8],
    second: &'a [u8],
}

impl<'a> Received<'a> {
    pub(crate) fn new(first: &'a [u8], second: &'a [u8]) -> Received<'a> {
        Received { first, second }
    }

    pub fn pieces(&self) -> [&'a [u8]; 2] {
        [self.first, self.second]
    }

    pub fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.second.is_empty()
    }

    /// Returns the first `max` bytes in one piece, copied only if they wrap.
    pub fn contiguous(&self, max: usize) -> Cow<'a, [u8]> {
        if self.first.len() >= max || self.second.is_empty() {
            return Cow::Borrowed(&self.first[..self.first.len().min(max)]);
        }
        let rest = (max - self.first.len()).min(self.second.len());
        let mut bytes = Vec::with_capacity(self.first.len() + rest);
        bytes.extend_from_slice(self.first);
        bytes.extend_from_slice(&self.second[..rest]);
        Cow::Owned(bytes)
    }

    /// Returns the offset of the first byte that is `wanted`.
    pub fn find(&self, wanted: u8) -> Option<usize> {
        let at = |piece: &[u8]| piece.iter().position(|byte| *byte == wanted);
        at(self.first).or_else(|| at(self.second).map(|at| self.first.len() + at))
    }
}

/// A datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    pub from: SocketAddr,
    /// Address and port it was sent to.
    pub to: SocketAddr,
    pub payload: Received<'a>,
}
