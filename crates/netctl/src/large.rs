//! Messages that are too long for a packet: their bytes are passed in a sealed memory file beside a
//! short message that gives their length.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::io::{Errno, pread, write};
use serde::{Deserialize, Serialize};

/// Longest message in a packet: below the limit of a socket's buffer.
pub const PACKET_MAX: usize = 128 * 1024;
/// Longest message at all.
pub const LARGE_MAX: usize = 16 << 20;

/// The short one.
#[derive(Serialize, Deserialize)]
enum Notice {
    Large(u64),
}

/// A message that is split: the packet, and the file that is passed with it, after all other
/// descriptors.
#[derive(Debug)]
pub struct Split {
    pub packet: Vec<u8>,
    pub file: OwnedFd,
}

/// # Errors
/// There is no memory for it, or it is longer than [`LARGE_MAX`].
pub fn split(bytes: &[u8]) -> io::Result<Split> {
    if bytes.len() > LARGE_MAX {
        return Err(Errno::MSGSIZE.into());
    }
    let file = memfd_create(
        "slipstack-message",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?;
    let mut left = bytes;
    while !left.is_empty() {
        let count = write(&file, left)?;
        left = &left[count..];
    }
    fcntl_add_seals(&file, seals())?;
    let packet = serde_json::to_vec(&Notice::Large(bytes.len() as u64))?;
    Ok(Split { packet, file })
}

/// Returns how many bytes a packet announces; `None`: it is the message itself.
pub fn announced(packet: &[u8]) -> Option<usize> {
    // Others do not begin so, and are not parsed twice.
    let is_notice = packet.starts_with(b"{\"Large\":");
    let Notice::Large(len) = is_notice.then(|| serde_json::from_slice(packet).ok())??;
    usize::try_from(len).ok().filter(|len| *len <= LARGE_MAX)
}

/// # Errors
/// It is no sealed memory file (only such a file can be read without waiting for its sender), or
/// has fewer bytes.
pub fn join(len: usize, file: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    if len > LARGE_MAX || !fcntl_get_seals(file)?.contains(seals()) {
        return Err(Errno::INVAL.into());
    }
    let mut bytes = vec![0; len];
    let mut at = 0;
    while at < len {
        match pread(file.as_fd(), &mut bytes[at..], at as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => at += count,
        }
    }
    Ok(bytes)
}

fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_goes_through_a_file() {
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
        let split = split(&bytes).unwrap();
        let len = announced(&split.packet).unwrap();
        assert_eq!(join(len, split.file.as_fd()).unwrap(), bytes);
        assert!(join(len + 1, split.file.as_fd()).is_err());
        assert_eq!(announced(b"{\"Net\":{}}"), None);
    }

    #[test]
    fn a_file_that_can_change_is_not_read() {
        let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        write(&file, b"{}").unwrap();
        assert!(join(2, file.as_fd()).is_err());
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(join(0, null.as_fd()).is_err());
    }

    #[test]
    fn the_largest_network_fits_a_message() {
        use crate::{Change, Mode, NetworkState, RouteEntry};
        let vlan = |vlan: u16| Change::AddVlan {
            name: format!("eth1.{vlan}"),
            link: vlan,
            id: vlan,
            within: None,
            is_provider: false,
        };
        let route = |n: u32| Change::AddRoute {
            route: RouteEntry {
                to: ((0xac10_0000u32 + n).to_be_bytes().into(), 32),
                ..RouteEntry::default_by([10, 0, 0, 1].into())
            },
            mode: Mode::Add,
        };
        let own = vec![([10, 0, 0, 5].into(), 24)];
        let mut state = NetworkState::of(1500, own, &[]);
        state.own_mut().name = "eth1".to_owned();
        let changes: Vec<Change> = (1..=128).map(vlan).chain((0..10_000).map(route)).collect();
        let state = state.changed(&changes).unwrap();
        let bytes = serde_json::to_vec(&state).unwrap();
        assert!(bytes.len() < LARGE_MAX, "{}", bytes.len());
        let read: NetworkState = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(read, state);
    }
}
