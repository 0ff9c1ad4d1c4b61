//! Maps of a program's, which it reads to choose a socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use slipstack_mem::PrivateFd;
use slipstack_terms::is_supported_map;

use super::sys::{self, MapInfo};

/// A map that can only be read.
#[derive(Debug)]
pub struct ProgramMap {
    fd: PrivateFd,
    info: MapInfo,
}

impl ProgramMap {
    /// Opens a map of the machine, for which a process needs the right to administer it.
    pub fn open(id: u32) -> io::Result<ProgramMap> {
        ProgramMap::of(sys::map_by_id(id)?)
    }

    /// Takes a descriptor over. Fails for maps of other kinds than those that can be read here.
    pub fn of(fd: OwnedFd) -> io::Result<ProgramMap> {
        let info = sys::map_info(fd.as_fd())?;
        if !is_supported_map(info.kind, info.value_len) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let fd = PrivateFd::of_engine(fd);
        Ok(ProgramMap { fd, info })
    }

    pub fn id(&self) -> u32 {
        self.info.id
    }

    pub fn key_len(&self) -> usize {
        self.info.key_len as usize
    }

    /// Returns the value of an element; that of a socket is its cookie.
    pub fn look_up(&self, key: &[u8]) -> Option<Vec<u8>> {
        if key.len() != self.key_len() {
            return None;
        }
        let mut value = vec![0; self.info.value_len as usize];
        sys::look_up(self.fd.as_fd(), key, &mut value).ok()?;
        Some(value)
    }
}

impl AsFd for ProgramMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
