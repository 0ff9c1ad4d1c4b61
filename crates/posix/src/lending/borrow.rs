//! The borrower's side: a connection of another process becomes one end of a pair when it is used.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use slipstack_mem::{Descriptor, Lock};

use super::words::{Control, Message, Wish, Word};
use super::{Names, Reach};
use crate::description::{Decided, Description, Kind};
use crate::errno::Errno;
use crate::outcome::Divert;
use crate::place::{replace, set_nonblocking};
use crate::process::Process;
use crate::socket::Dgram;
use crate::table::Entry;

/// A connection that lives in another process.
#[derive(Debug)]
pub(crate) struct Borrowed {
    /// The owner's number for it.
    pub(super) id: u64,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    /// To the owner's steward. `None`: the owner cannot be spoken to.
    control: Option<Arc<Control>>,
    /// Names the pair that is under the numbers; `None`: the connection has not been used.
    token: Lock<Option<u64>>,
    /// The steward passes on whatever comes.
    is_streaming: AtomicBool,
    /// A datagram socket of this process's own, which takes its place when it is connected.
    own: Lock<Option<Box<Dgram>>>,
}

impl Borrowed {
    pub(crate) fn new(
        id: u64,
        names: Option<&Names>,
        control: Option<Arc<Control>>,
        token: Option<u64>,
    ) -> Borrowed {
        Borrowed {
            id,
            local: names.and_then(|names| names.local),
            remote: names.and_then(|names| names.remote),
            control,
            token: Lock::new(token),
            is_streaming: AtomicBool::new(false),
            own: Lock::default(),
        }
    }

    /// One that another program has sent: the number is an end of a pair.
    pub(crate) fn received(local: SocketAddr, remote: SocketAddr) -> Borrowed {
        Borrowed {
            id: 0,
            local: Some(local),
            remote: Some(remote),
            control: None,
            token: Lock::new(Some(0)),
            is_streaming: AtomicBool::new(true),
            own: Lock::default(),
        }
    }

    /// The same in a child of this process, which speaks to the steward by `control`.
    pub(crate) fn for_child(&self, control: Option<Arc<Control>>) -> Borrowed {
        let is_streaming = self.is_streaming.load(Ordering::Relaxed);
        Borrowed {
            id: self.id,
            local: self.local,
            remote: self.remote,
            control,
            token: Lock::new(self.token()),
            is_streaming: AtomicBool::new(is_streaming),
            own: Lock::default(),
        }
    }

    pub(crate) fn or_own(self, dgram: Dgram) -> Borrowed {
        *self.own.lock() = Some(Box::new(dgram));
        self
    }

    /// This process's own socket, if it has not used the other's.
    pub(crate) fn take_own(&self) -> Option<Dgram> {
        if self.is_taken() {
            return None;
        }
        self.own.lock().take().map(|own| *own)
    }

    pub(crate) fn control(&self) -> Option<&Arc<Control>> {
        self.control.as_ref()
    }

    pub(super) fn token(&self) -> Option<u64> {
        self.token.try_lock().and_then(|token| *token)
    }

    pub(super) fn is_streaming(&self) -> bool {
        self.is_streaming.load(Ordering::Relaxed)
    }

    pub(super) fn note_streaming(&self) {
        self.is_streaming.store(true, Ordering::Relaxed);
    }

    /// Puts an end of a pair under the numbers, if that has not been done, and says what the program wants to read.
    pub(crate) fn take(&self, process: &Process, socket: &Arc<Description>, wish: Wish) {
        if self.hold(process, socket, Reach::Heard)
            && wish != Wish::None
            && !self.is_streaming.load(Ordering::Acquire)
        {
            self.wish(socket, wish, socket.is_nonblocking());
        }
    }

    /// Puts an end of a pair under the numbers; whether one is there.
    pub(super) fn hold(&self, process: &Process, socket: &Arc<Description>, reach: Reach) -> bool {
        let mut token = self.token.lock();
        if token.is_none() {
            match self.make_pair(process, socket, reach) {
                Ok(made) => *token = Some(made),
                Err(_) => {
                    process.warn_of_foreign(socket);
                    return false;
                }
            }
        }
        true
    }

    /// Says what the program wants to read. A call that does not block finds what the steward has then.
    pub(super) fn wish(&self, socket: &Description, wish: Wish, is_prompt: bool) {
        let (Some(control), Some(token)) = (&self.control, self.token()) else {
            return;
        };
        let waiting = socket
            .kernel_number()
            .and_then(|number| rustix::io::ioctl_fionread(number.as_fd()).ok())
            .unwrap_or(0);
        let (wish, is_prompt) = match wish {
            // The call ends with what is there.
            Wish::Some(_) if waiting > 0 => return,
            Wish::Whole(count) if waiting >= count => return,
            Wish::Whole(count) => (Wish::Whole(count - waiting), is_prompt),
            Wish::All if self.is_streaming.swap(true, Ordering::AcqRel) => return,
            // Who polls looks once and then sleeps.
            Wish::All => (wish, true),
            Wish::Some(_) | Wish::None => (wish, is_prompt),
        };
        let name = (self.id, token);
        let _ = match is_prompt {
            true => control.ask(Message::read(Word::ReadNow, name, wish)),
            false => control.say(Message::read(Word::Read, name, wish), None),
        };
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.token().is_some()
    }

    /// The last number was closed.
    pub(crate) fn give_back(&self) {
        if !self.is_taken() {
            self.say(Word::GiveBack, 0);
        }
    }

    /// The program shuts a direction down: what its end of the pair tells could be its end as well.
    pub(crate) fn shut(&self, (read, write): (bool, bool)) {
        self.say(Word::Shut, u64::from(read) | u64::from(write) << 1);
    }

    fn say(&self, word: Word, amount: u64) {
        if let Some(control) = &self.control {
            let message = Message {
                word,
                id: self.id,
                token: self.token().unwrap_or(0),
                amount,
            };
            let _ = control.say(message, None);
        }
    }

    fn make_pair(
        &self,
        process: &Process,
        socket: &Description,
        reach: Reach,
    ) -> Result<u64, Errno> {
        let control = self.control.as_ref().ok_or(Errno::ENOTCONN)?;
        let kind = match socket.kind {
            Kind::Stream => SocketType::STREAM,
            Kind::Dgram => SocketType::SEQPACKET,
        };
        let family = AddressFamily::UNIX;
        let (ours, theirs) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        limit_times(&ours, socket)?;
        if let (Some(local), Some(remote)) = (self.local, self.remote) {
            let inode = process.inode_of(socket);
            process
                .lending
                .nameplates
                .put(&theirs, (local, remote), inode);
        }
        let message = Message {
            word: Word::Take,
            id: self.id,
            token: process.next_token(),
            amount: u64::from(reach == Reach::Unheard),
        };
        control.say(message, Some(theirs.as_fd()))?;
        let numbers = socket.cold.lock().numbers.clone();
        for number in numbers.into_iter().filter_map(Descriptor::new) {
            replace(number, &ours)?;
            set_nonblocking(number, socket.is_nonblocking())?;
        }
        socket.has_kernel.store(true, Ordering::Release);
        process.report.on_borrowed(socket, self.local, self.remote);
        Ok(message.token)
    }
}

/// SO_RCVTIMEO and SO_SNDTIMEO as they are; from then on they are set where the connection is used.
fn limit_times(end: &OwnedFd, socket: &Description) -> Result<(), Errno> {
    let limits = [
        (Timeout::Recv, &socket.recv_timeout_ns),
        (Timeout::Send, &socket.send_timeout_ns),
    ];
    for (which, limit) in limits {
        match limit.load(Ordering::Relaxed) {
            0 => {}
            ns => set_socket_timeout(end, which, Some(Duration::from_nanos(ns)))?,
        }
    }
    Ok(())
}

impl Process {
    /// A call on a connection that lives in the parent: made on the pair's end, which the kernel
    /// serves.
    pub(crate) fn borrow(&self, socket: &Arc<Description>, it: &Borrowed, wish: Wish) -> Divert {
        it.take(self, socket, wish);
        if it.is_taken() {
            Divert::Kernel
        } else {
            Errno::ENOTCONN.into()
        }
    }

    /// A receiving call on a connection that lives elsewhere.
    pub(crate) fn borrow_to_read(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        (asked, flags): (usize, i32),
    ) -> Divert {
        if !it.hold(self, socket, Reach::Heard) {
            return Errno::ENOTCONN.into();
        }
        if asked > 0 && !it.is_streaming() {
            let asked = asked as u64;
            let wish = match flags & libc::MSG_WAITALL {
                0 => Wish::Some(asked),
                _ => Wish::Whole(asked),
            };
            let is_prompt = socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0;
            it.wish(socket, wish, is_prompt);
        }
        Divert::Kernel
    }

    /// Called before the program confines itself to some system calls (seccomp(2)): connections that
    /// other processes lend are passed on from now on without being asked for, because the calls that
    /// ask may be forbidden.
    pub fn before_confinement(&self) {
        self.each_borrowed(|socket, it| it.take(self, socket, Wish::All));
    }

    /// Called before the program may have no further descriptor.
    pub fn before_few_descriptors(&self) {
        self.each_borrowed(|socket, it| {
            it.hold(self, socket, Reach::Heard);
        });
    }

    fn each_borrowed(&self, f: impl Fn(&Arc<Description>, &Borrowed)) {
        for (_, entry) in self.table.all() {
            if let Entry::Socket(socket) = entry
                && let Some(Decided::Foreign(it)) = socket.decided()
            {
                f(&socket, it);
            }
        }
    }

    /// No two pairs have the same.
    fn next_token(&self) -> u64 {
        u64::from(std::process::id()) << 32 | (self.next_id() & u64::from(u32::MAX))
    }

    fn warn_of_foreign(&self, socket: &Description) {
        let fd = socket.cold.lock().numbers.first().copied().unwrap_or(-1);
        self.warn_once(&format!(
            "descriptor {fd} is a connection of the process this one was forked from, which has ended or cannot \
             lend it; it cannot be used here"
        ));
    }
}
