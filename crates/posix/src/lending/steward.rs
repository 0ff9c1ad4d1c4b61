//! The parent's thread for one child: keeps what the child may use, and moves its bytes.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use slipstack_mem::thread::spawn_quiet;
use slipstack_mem::{Descriptor, raised};

use super::pump::Pump;
use super::{MESSAGE, Word};
use crate::description::Description;
use crate::process::Process;

/// How often to look whether the program has left a connection to a child.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

struct Steward {
    process: &'static Process,
    /// `None` when the child has ended or replaced itself.
    control: Option<OwnedFd>,
    /// What the child may use and has not used.
    held: Vec<Arc<Description>>,
    pumps: Vec<Pump>,
}

/// Lends `shared`, which count as lent already, to the child at the other end of `control`.
pub(super) fn start(process: &'static Process, control: OwnedFd, shared: Vec<Arc<Description>>) {
    let number = control.as_raw_fd();
    process.lending.note(number);
    let mut steward = Steward {
        process,
        control: Some(control),
        held: shared.clone(),
        pumps: Vec::new(),
    };
    if spawn_quiet("slipstack-lend", move || steward.run()).is_err() {
        // The child gets ENOTCONN.
        process.lending.forget(number);
        for socket in shared {
            process.take_back(&socket);
        }
    }
}

/// Lends a connection, which counts as lent already, to whoever has the other end of the pair.
/// `reads`: that is to read from it.
pub(super) fn start_for_one(
    process: &'static Process,
    socket: &Arc<Description>,
    end: OwnedFd,
    reads: bool,
) {
    let Some(number) = process.steward_number(socket) else {
        return process.take_back(socket);
    };
    let end = raised(end);
    let end_number = end.as_raw_fd();
    process.lending.note(end_number);
    let mut pump = Pump::new(Arc::clone(socket), number, end);
    if reads {
        pump.read();
    }
    let mut steward = Steward {
        process,
        control: None,
        held: Vec::new(),
        pumps: vec![pump],
    };
    let started = spawn_quiet("slipstack-lend", move || steward.run());
    if started.is_err() {
        process.lending.forget(end_number);
        process.close_steward_number(number);
        process.take_back(socket);
    }
}

impl Steward {
    fn run(&mut self) {
        while self.control.is_some() || !self.pumps.is_empty() {
            let mut fds = Vec::with_capacity(1 + 2 * self.pumps.len());
            fds.push(libc::pollfd {
                fd: self.control.as_ref().map_or(-1, AsRawFd::as_raw_fd),
                events: libc::POLLIN,
                revents: 0,
            });
            for pump in &self.pumps {
                fds.extend(pump.wants(self.process));
            }
            // Nobody tells when the program closes its last number.
            let is_waiting = self.pumps.iter().any(|pump| !pump.may_read(self.process));
            let timeout = is_waiting.then_some(LOOK_AGAIN);
            // Without an engine every connection is over, which the pumps find out.
            if self.process.poll(&mut fds, timeout, None).is_err() {
                rest(&mut fds);
            }
            for (pump, ready) in self.pumps.iter_mut().zip(fds[1..].chunks_exact(2)) {
                pump.run(self.process, ready[0].revents, ready[1].revents);
            }
            let process = self.process;
            self.pumps.retain(|pump| {
                if pump.is_over() {
                    pump.end(process);
                }
                !pump.is_over()
            });
            if fds[0].revents != 0 {
                self.listen();
            }
        }
    }

    /// One message of the child, or its end.
    fn listen(&mut self) {
        let Some(control) = &self.control else { return };
        let mut message = [0; MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [IoSliceMut::new(&mut message)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        match rustix::net::recvmsg(control, &mut bytes, &mut ancillary, flags) {
            Ok(received) if received.bytes == MESSAGE => {
                let end = ancillary.drain().find_map(|part| match part {
                    RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                    _ => None,
                });
                let (word, id) = message.split_at(1);
                let id = u64::from_le_bytes(id.try_into().unwrap_or_default());
                self.on_word(word[0], id, end);
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            _ => self.on_end(),
        }
    }

    fn on_word(&mut self, word: u8, id: u64, end: Option<OwnedFd>) {
        let held = self.held.iter().position(|socket| socket.id == id);
        match (held, end) {
            (Some(at), Some(end)) if word == Word::Take as u8 => {
                let socket = self.held.swap_remove(at);
                match self.process.steward_number(&socket) {
                    Some(number) => {
                        let end = raised(end);
                        self.process.lending.note(end.as_raw_fd());
                        self.pumps.push(Pump::new(socket, number, end));
                    }
                    None => self.process.take_back(&socket),
                }
            }
            (Some(at), None) if word == Word::GiveBack as u8 => {
                let socket = self.held.swap_remove(at);
                self.process.take_back(&socket);
            }
            (None, None) if word == Word::Read as u8 => {
                if let Some(pump) = self.pumps.iter_mut().find(|pump| pump.is_of(id)) {
                    pump.read();
                }
            }
            _ => {}
        }
    }

    fn on_end(&mut self) {
        if let Some(control) = self.control.take() {
            self.process.lending.forget(control.as_raw_fd());
        }
        for socket in std::mem::take(&mut self.held) {
            self.process.take_back(&socket);
        }
    }
}

/// Sleeps on what the kernel knows.
fn rest(fds: &mut [libc::pollfd]) {
    let numbers: Vec<_> = fds.iter().map(|fd| Descriptor::new(fd.fd)).collect();
    let mut polled: Vec<_> = numbers
        .iter()
        .flatten()
        .map(|number| {
            rustix::event::PollFd::from_borrowed_fd(number.as_fd(), rustix::event::PollFlags::IN)
        })
        .collect();
    if rustix::event::poll(&mut polled, None).is_ok() {
        let results: Vec<i16> = polled.iter().map(|it| it.revents().bits() as i16).collect();
        let known = fds
            .iter_mut()
            .zip(&numbers)
            .filter(|(_, number)| number.is_some());
        for ((fd, _), revents) in known.zip(results) {
            fd.revents = revents;
        }
    }
}

impl Process {
    /// A number of the steward's own, so that the connection has one whatever the program closes.
    fn steward_number(&self, socket: &Arc<Description>) -> Option<i32> {
        let fd = rustix::io::fcntl_dupfd_cloexec(self.anchor().ok()?, 0).ok()?;
        let number = Descriptor::give(raised(fd));
        self.lending.note(number.number());
        self.install(number, socket);
        Some(number.number())
    }

    /// A child is done with a connection; if nobody else has it, and no thread of ours is inside a call on it, it ends.
    pub(super) fn take_back(&self, socket: &Arc<Description>) {
        if socket.lent.remove() && socket.may_end() && socket.cold.lock().numbers.is_empty() {
            self.end(socket);
        }
    }

    /// Whether the program has closed all its own numbers of a connection.
    pub(super) fn is_left_to_steward(&self, socket: &Description) -> bool {
        let numbers = socket.cold.lock().numbers.clone();
        numbers
            .into_iter()
            .all(|number| self.lending.is_stewards(number))
    }

    pub(super) fn close_steward_number(&self, number: i32) {
        self.lending.forget(number);
        let _ = self.close(number);
    }
}
