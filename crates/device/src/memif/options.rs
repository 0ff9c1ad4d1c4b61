//! The options after `memif:`, and the socket that they name.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use serde::{Deserialize, Serialize};
use slipstack_mem::process::explained;

use crate::error::DeviceError;

/// Rings of 2^10 frames.
const LOG2_RING: u8 = 10;
const LOG2_RING_MIN: u8 = 4;
/// Indices of a ring are 16 bits wide.
pub(super) const LOG2_RING_MAX: u8 = 14;
/// Queues in each direction at most.
pub(super) const QUEUES_MAX: usize = 16;
pub(super) const SECRET_LEN: usize = 24;
const BACKLOG: i32 = 4;
/// Only the keeper's own user and root get to the socket.
const FILE_MODE: u32 = 0o600;

/// The side of a connection: the server makes the socket, the client provides the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Role {
    Client,
    Server,
}

/// One interface of a memif socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Options {
    /// A path, or behind `@` an abstract name.
    pub socket: String,
    pub role: Role,
    pub id: u32,
    pub log2_ring: u8,
    /// In each direction; a client makes no more than its server takes.
    pub queues: u16,
    pub secret: String,
    /// Permissions of a server's socket file.
    pub mode: u32,
}

impl Options {
    /// Parses `SOCKET[,role=…][,id=…][,ring=…][,queues=…][,secret=…][,mode=…]`.
    pub(super) fn parse(text: Option<&str>) -> Result<Options, DeviceError> {
        let mut words = text.unwrap_or_default().split(',');
        let socket = words.next().unwrap_or_default();
        if matches!(socket, "" | "@") {
            let needed = "the device \"memif\" needs a socket: memif:/path/to/socket,role=client";
            return Err(DeviceError::Unsuitable(needed.to_owned()));
        }
        let mut options = Options {
            socket: socket.to_owned(),
            role: Role::Client,
            id: 0,
            log2_ring: LOG2_RING,
            queues: 1,
            secret: String::new(),
            mode: FILE_MODE,
        };
        for word in words {
            options.set(word)?;
        }
        Ok(options)
    }

    fn set(&mut self, word: &str) -> Result<(), DeviceError> {
        let wrong = |must: &str| DeviceError::Unsuitable(format!("memif: \"{word}\" {must}"));
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "role" => {
                self.role = match value {
                    "client" => Role::Client,
                    "server" => Role::Server,
                    _ => return Err(wrong("must be role=client or role=server")),
                }
            }
            "id" => {
                let id = value.parse();
                self.id = id.map_err(|_| wrong("must be a number from 0 to 4294967295"))?;
            }
            "ring" => {
                let frames: u32 = value.parse().unwrap_or(0);
                let log2 = frames.checked_ilog2().unwrap_or(0) as u8;
                let is_fit = (LOG2_RING_MIN..=LOG2_RING_MAX).contains(&log2);
                if !frames.is_power_of_two() || !is_fit {
                    return Err(wrong("must be a power of two from 16 to 16384"));
                }
                self.log2_ring = log2;
            }
            "queues" => {
                let queues = value.parse().ok();
                let queues = queues.filter(|n| (1..=QUEUES_MAX as u16).contains(n));
                self.queues = queues.ok_or_else(|| wrong("must be a number from 1 to 16"))?;
            }
            "secret" if value.len() <= SECRET_LEN => value.clone_into(&mut self.secret),
            "secret" => return Err(wrong("must have at most 24 bytes")),
            "mode" => {
                let mode = u32::from_str_radix(value, 8).ok().filter(|m| *m <= 0o777);
                self.mode = mode.ok_or_else(|| wrong("must be permissions such as 0660"))?;
            }
            _ => {
                return Err(wrong(
                    "is no option; there are: role, id, ring, queues, secret, mode",
                ));
            }
        }
        Ok(())
    }

    fn address(&self) -> io::Result<SocketAddrUnix> {
        Ok(match self.socket.strip_prefix('@') {
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
            None => SocketAddrUnix::new(Path::new(&self.socket))?,
        })
    }

    /// Returns the server's socket. A file of a server that is gone is replaced, one in use is not.
    pub(super) fn listen(&self) -> Result<OwnedFd, DeviceError> {
        self.try_listen().map_err(|error| {
            let why = explained(&error);
            DeviceError::Unsuitable(format!("memif socket \"{}\": {why}", self.socket))
        })
    }

    /// Checks that a server's socket can be, or come, at the place that a client names.
    ///
    /// # Errors
    /// Nothing can be reached by that name, or it is a file of another type.
    pub(super) fn check_place(&self) -> Result<(), DeviceError> {
        let unusable =
            |why: &str| DeviceError::Unsuitable(format!("memif socket \"{}\": {why}", self.socket));
        self.address()
            .map_err(|error| unusable(&explained(&error)))?;
        if self.socket.starts_with('@') {
            return Ok(());
        }
        match rustix::fs::stat(&self.socket) {
            Ok(it) if !FileType::from_raw_mode(it.st_mode).is_socket() => {
                Err(unusable("a file that is no socket has this name"))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(unusable(&explained(&error.into()))),
        }
    }

    fn try_listen(&self) -> io::Result<OwnedFd> {
        if self.connect().is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let socket = new_socket()?;
        let address = self.address()?;
        if !self.socket.starts_with('@') {
            match rustix::fs::lstat(&self.socket) {
                Ok(it) if FileType::from_raw_mode(it.st_mode).is_socket() => {
                    rustix::fs::unlink(&self.socket)?;
                }
                Ok(_) => return Err(io::Error::other("a file that is no socket has this name")),
                Err(_) => {}
            }
        }
        bind(&socket, &address)?;
        if !self.socket.starts_with('@') {
            rustix::fs::chmod(&self.socket, Mode::from_raw_mode(self.mode))?;
        }
        listen(&socket, BACKLOG)?;
        Ok(socket)
    }

    /// Which file the server's socket is: device and number. An abstract one is none.
    pub(super) fn file(&self) -> Option<(u64, u64)> {
        if self.socket.starts_with('@') {
            return None;
        }
        let it = rustix::fs::lstat(&self.socket).ok()?;
        Some((it.st_dev, it.st_ino))
    }

    /// Removes the server's socket, if it is this file still.
    pub(super) fn unlink(&self, file: (u64, u64)) {
        if self.file() == Some(file) {
            let _ = rustix::fs::unlink(&self.socket);
        }
    }

    /// A connection to the server.
    pub(super) fn connect(&self) -> io::Result<OwnedFd> {
        let socket = new_socket()?;
        connect(&socket, &self.address()?)?;
        Ok(socket)
    }
}

fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_refused_where_no_socket_can_come() {
        let file = std::env::temp_dir().join(format!("slipstack-memif-{}", std::process::id()));
        std::fs::write(&file, "text").unwrap();
        let check = |socket: &str| Options::parse(Some(socket)).unwrap().check_place();
        let said = |socket: &str| check(socket).unwrap_err().to_string();
        let file = file.to_str().unwrap();
        assert!(
            said(file).contains("a file that is no socket"),
            "{}",
            said(file)
        );
        assert!(said(&format!("{file}/socket")).contains("Not a directory"));
        assert!(said(&format!("/{}", "x".repeat(200))).contains("too long"));
        check("/no/such/folder/yet").unwrap();
        check("@abstract").unwrap();
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn options_are_read_and_wrong_ones_are_named() {
        let options = Options::parse(Some("/a/b,role=server,id=7,ring=64,mode=0660")).unwrap();
        assert_eq!((options.role, options.id), (Role::Server, 7));
        assert_eq!((options.log2_ring, options.mode), (6, 0o660));
        assert_eq!(Options::parse(Some("@x")).unwrap().role, Role::Client);
        for (text, word) in [
            ("", "needs a socket"),
            ("/a,role=master", "role=client or role=server"),
            ("/a,ring=100", "power of two"),
            ("/a,ring=32768", "16384"),
            ("/a,id=-1", "number"),
            ("/a,secret=0123456789012345678901234", "24 bytes"),
            ("/a,mode=9", "permissions"),
            ("/a,mtu=3", "there are: role"),
        ] {
            let error = Options::parse(Some(text)).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
