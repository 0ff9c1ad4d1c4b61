//! Moves bytes between a connection and the child's end of a pair.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{RecvFlags, SendFlags, Shutdown};

use crate::description::Description;
use crate::process::Process;

/// Bytes that wait in one direction at most.
const ROOM: usize = 64 << 10;

/// One direction.
#[derive(Debug, Default)]
struct Way {
    bytes: Vec<u8>,
    /// Bytes of `bytes` that have been passed on.
    passed: usize,
    /// Nothing more comes from the source.
    is_ended: bool,
    /// The end, or that nobody wants more, has been passed on.
    is_done: bool,
}

impl Way {
    fn over() -> Way {
        Way {
            is_ended: true,
            is_done: true,
            ..Way::default()
        }
    }

    fn is_empty(&self) -> bool {
        self.passed == self.bytes.len()
    }

    fn on_passed(&mut self, count: usize) {
        self.passed += count;
        if self.is_empty() {
            self.bytes.clear();
            self.passed = 0;
        }
    }

    fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> Option<usize>) {
        self.bytes.resize(ROOM, 0);
        let count = read(&mut self.bytes);
        self.bytes.truncate(count.unwrap_or(0));
        self.is_ended |= count == Some(0);
    }
}

pub(super) struct Pump {
    socket: Arc<Description>,
    number: i32,
    child: OwnedFd,
    /// The child has no end of the pair any more.
    is_abandoned: bool,
    /// What was sent to the child will not be read: the peer gets a reset.
    is_unread: bool,
    may_read: bool,
    to_child: Way,
    to_peer: Way,
}

impl Pump {
    pub(super) fn new(socket: Arc<Description>, number: i32, child: OwnedFd) -> Pump {
        Pump {
            socket,
            number,
            child,
            is_abandoned: false,
            is_unread: false,
            may_read: false,
            to_child: Way::default(),
            to_peer: Way::default(),
        }
    }

    pub(super) fn is_of(&self, id: u64) -> bool {
        self.socket.id == id
    }

    /// The child wants to read.
    pub(super) fn read(&mut self) {
        self.may_read = true;
    }

    pub(super) fn may_read(&self, process: &Process) -> bool {
        self.may_read || process.is_left_to_steward(&self.socket)
    }

    /// What to wait for at the connection and at the child's end.
    pub(super) fn wants(&self, process: &Process) -> [libc::pollfd; 2] {
        let bit = |is_on: bool, bit: i16| if is_on { bit } else { 0 };
        let may_read = self.may_read(process);
        let reads_peer = may_read && self.to_child.is_empty() && !self.to_child.is_ended;
        let reads_child = self.to_peer.is_empty() && !self.to_peer.is_ended;
        let peer = bit(reads_peer, libc::POLLIN) | bit(!self.to_peer.is_empty(), libc::POLLOUT);
        let child = bit(reads_child, libc::POLLIN) | bit(!self.to_child.is_empty(), libc::POLLOUT);
        let fd = |number: i32, events: i16, is_over: bool| libc::pollfd {
            // A hang-up that has been dealt with must not end every sleep.
            fd: if is_over { -1 } else { number },
            events,
            revents: 0,
        };
        let is_child_over = self.is_abandoned && !reads_child;
        [
            fd(self.number, peer, peer == 0),
            fd(self.child.as_raw_fd(), child, is_child_over),
        ]
    }

    pub(super) fn run(&mut self, process: &Process, peer: i16, child: i16) {
        if child & (libc::POLLHUP | libc::POLLERR) != 0 {
            self.is_abandoned = true;
            self.is_unread |= !self.to_child.is_empty();
            self.to_child = Way::over();
        }
        let has_bytes = child & (libc::POLLIN | libc::POLLHUP | libc::POLLERR) != 0;
        if (has_bytes || self.is_abandoned) && self.to_peer.is_empty() && !self.to_peer.is_ended {
            self.read_child();
        }
        if peer & (libc::POLLIN | libc::POLLHUP | libc::POLLERR) != 0
            && self.to_child.is_empty()
            && !self.to_child.is_ended
        {
            self.read_peer(process);
        }
        self.write_peer(process);
        self.write_child();
    }

    fn read_child(&mut self) {
        let child = &self.child;
        let is_unread = &mut self.is_unread;
        self.to_peer.fill(
            |bytes| match rustix::net::recv(child, bytes, RecvFlags::DONTWAIT) {
                Ok((count, _)) => Some(count),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => None,
                Err(error) => {
                    // It has ended and left something unread.
                    *is_unread |= error == rustix::io::Errno::CONNRESET;
                    Some(0)
                }
            },
        );
    }

    fn read_peer(&mut self, process: &Process) {
        let number = self.number;
        self.to_child.fill(|bytes| {
            match process.recv(number, &mut [IoSliceMut::new(bytes)], libc::MSG_DONTWAIT) {
                Ok(received) => Some(received.len),
                Err(divert) if divert.is_wait() => None,
                Err(_) => Some(0),
            }
        });
    }

    fn write_peer(&mut self, process: &Process) {
        let way = &mut self.to_peer;
        if !way.is_empty() {
            let bytes = [IoSlice::new(&way.bytes[way.passed..])];
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            match process.send(self.number, &bytes, None, flags) {
                Ok(count) => way.on_passed(count),
                Err(divert) if divert.is_wait() => {}
                Err(_) => self.end_writing(),
            }
        }
        let way = &mut self.to_peer;
        if way.is_empty() && way.is_ended && !way.is_done {
            way.is_done = true;
            // The connection is closed with the last number; this is for a child that still reads.
            if !self.is_abandoned {
                let _ = process.shutdown(self.number, libc::SHUT_WR);
            }
        }
    }

    fn write_child(&mut self) {
        let way = &mut self.to_child;
        if !way.is_empty() {
            let bytes = &way.bytes[way.passed..];
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.child, bytes, flags) {
                Ok(count) => way.on_passed(count),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(_) => {
                    self.is_unread = true;
                    *way = Way::over();
                }
            }
        }
        let way = &mut self.to_child;
        if way.is_empty() && way.is_ended && !way.is_done {
            way.is_done = true;
            let _ = rustix::net::shutdown(&self.child, Shutdown::Write);
        }
    }

    /// The peer takes nothing more. What it has sent is still to be read.
    fn end_writing(&mut self) {
        self.to_peer = Way::over();
        self.may_read = true;
        let _ = rustix::net::shutdown(&self.child, Shutdown::Read);
    }

    pub(super) fn is_over(&self) -> bool {
        self.to_peer.is_done && self.to_child.is_done
    }

    /// The child's share is given back; the last one closes the connection.
    pub(super) fn end(&self, process: &Process) {
        let _ = rustix::net::shutdown(&self.child, Shutdown::Both);
        if self.is_unread {
            self.socket.lent.leave_unread();
        }
        process.lending.forget(self.child.as_raw_fd());
        process.close_steward_number(self.number);
        process.take_back(&self.socket);
    }
}
