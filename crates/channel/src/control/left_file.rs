//! The file with a connection that a killed process has left.
//!
//! ```text
//! 0   bytes of the user that its owner had taken, modulo 2^32 (u64); bits: there may be more that
//!     it had not put into the send ring; the user may have bytes that are in the ring too (u64)
//!     length of the connection's head (u64), then the head, as engines exchange it
//!     length of the bytes to send again (u64), then these
//!     received bytes
//! ```

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Most bytes in the send ring of a connection that another process goes on with.
pub const UNSENT_MAX: usize = 32 << 10;

/// Bytes of a connection that its killed process had passed on to this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOn {
    /// Number of those that this process has not read.
    pub unread: u32,
    /// Number of all, modulo 2^32. `None`: it is not known.
    pub given: Option<u32>,
}

/// A connection of a killed process that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedLeft {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// The secret that its process has told ([`super::Hello::heirs`]).
    pub heirs: u64,
    pub has: PassedOn,
    /// The client asks only whether the connection is there.
    pub is_question: bool,
}

/// A connection that a killed process has left. The last part are received bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftFile {
    /// The part before the received bytes of a connection, as engines exchange it.
    pub head: Vec<u8>,
    /// Bytes to send: the peer has not acknowledged them, as far as is known.
    pub unsent: Vec<u8>,
    pub received: Vec<u8>,
    /// Bytes of the user that the owner has put into the send ring, modulo 2^32.
    pub taken: u32,
    /// The owner may have had more of them.
    pub is_taking: bool,
    /// The user may have received bytes that are in the ring too: it must know how many it has.
    pub is_giving: bool,
}

impl LeftFile {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut all = u64::from(self.taken).to_le_bytes().to_vec();
        let bits = u64::from(self.is_taking) | u64::from(self.is_giving) << 1;
        all.extend(bits.to_le_bytes());
        for part in [&self.head, &self.unsent] {
            all.extend((part.len() as u64).to_le_bytes());
            all.extend(part);
        }
        all.extend(&self.received);
        all
    }

    /// Returns `None` if a length exceeds what there is.
    pub fn from_bytes(bytes: &[u8]) -> Option<LeftFile> {
        let (taken, rest) = bytes.split_first_chunk()?;
        let (bits, rest) = rest.split_first_chunk()?;
        let bits = u64::from_le_bytes(*bits);
        let (head, rest) = part(rest)?;
        let (unsent, received) = part(rest)?;
        Some(LeftFile {
            head: head.to_vec(),
            unsent: unsent.to_vec(),
            received: received.to_vec(),
            taken: u32::try_from(u64::from_le_bytes(*taken)).ok()?,
            is_taking: bits & 1 != 0,
            is_giving: bits & 2 != 0,
        })
    }
}

fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_back_and_a_cut_one_is_refused() {
        for [is_taking, is_giving] in [[false, false], [false, true], [true, false], [true; 2]] {
            let file = LeftFile {
                head: b"head".to_vec(),
                unsent: b"unsent".to_vec(),
                received: b"received".to_vec(),
                taken: 7,
                is_taking,
                is_giving,
            };
            let bytes = file.to_bytes();
            assert_eq!(LeftFile::from_bytes(&bytes), Some(file));
            let least = bytes.len() - b"received".len();
            for len in 0..least {
                assert_eq!(LeftFile::from_bytes(&bytes[..len]), None, "{len}");
            }
        }
        assert_eq!(LeftFile::from_bytes(&[0xff; 40]), None);
    }
}
