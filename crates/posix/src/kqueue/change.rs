//! The changes that kevent applies: kqueue_register().

use slipstack_mem::Descriptor;

use crate::epoll::Target;
use crate::errno::Errno;
use crate::kqueue::at::KqueueRef;
use crate::kqueue::members::bits_of;
use crate::kqueue::note::Note;
use crate::kqueue::queue::{Inner, Member, place_of};
use crate::kqueue::regular::{is_of_file, is_regular};
use crate::kqueue::{
    EV_ADD, EV_DELETE, EV_ERROR, EV_RECEIPT, EVFILT_EMPTY, EVFILT_PROC, EVFILT_READ, EVFILT_SIGNAL,
    EVFILT_TIMER, EVFILT_USER, EVFILT_VNODE, EVFILT_WRITE, Kevent,
};
use crate::outcome::Divert;
use crate::ready::bits;
use crate::socket::description::{Decided, Kind};

const EDGE: u32 = libc::EPOLLET as u32;

impl KqueueRef<'_> {
    /// Makes one change. An error and a receipt are events, which `put` takes while there is room.
    ///
    /// # Errors
    /// The event, if `put` takes none.
    pub(crate) fn apply(
        self,
        change: &Kevent,
        put: &mut dyn FnMut(Kevent) -> bool,
    ) -> Result<(), Errno> {
        let outcome = self.register(change);
        let is_receipt = change.flags & EV_RECEIPT != 0;
        if outcome.is_ok() && !is_receipt {
            return Ok(());
        }
        let reported = Kevent {
            flags: EV_ERROR,
            data: outcome.err().map_or(0, |error| error.freebsd().into()),
            ..*change
        };
        match put(reported) {
            true => Ok(()),
            false => outcome,
        }
    }

    fn register(self, change: &Kevent) -> Result<(), Errno> {
        match change.filter {
            EVFILT_READ | EVFILT_WRITE | EVFILT_EMPTY => match self.register_member(change) {
                Err(Errno::EPERM | Errno::ENOENT)
                    if is_of_file(change.filter) && is_regular(change.ident) =>
                {
                    self.register_other(change)
                }
                outcome => outcome,
            },
            EVFILT_TIMER | EVFILT_USER | EVFILT_SIGNAL | EVFILT_PROC | EVFILT_VNODE => {
                self.register_other(change)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn register_member(self, change: &Kevent) -> Result<(), Errno> {
        let fd = i32::try_from(change.ident).map_err(|_| Errno::EBADF)?;
        let place = place_of(change.filter).ok_or(Errno::EINVAL)?;
        if fd == self.number {
            return Err(Errno::EINVAL);
        }
        let mut inner = self.queue.inner.lock();
        let known = inner.members.get_mut(&fd);
        let note = known.and_then(|member| member.notes[place].as_mut());
        match note {
            None if change.flags & EV_ADD == 0 => return Err(self.missing(fd)),
            None if change.flags & EV_DELETE != 0 => return Ok(()),
            None => {
                let is_kernels_listener = self.check_member(fd, change.filter)?;
                let member = inner.members.entry(fd).or_default();
                member.notes[place] = Some(Note::new(change));
                member.is_kernels_listener = is_kernels_listener;
            }
            Some(_) if change.flags & EV_DELETE != 0 => {
                if let Some(member) = inner.members.get_mut(&fd) {
                    member.notes[place] = None;
                }
            }
            Some(note) => {
                note.change(change);
                note.fflags = change.fflags;
                note.data = change.data;
            }
        }
        let known = self.target_of(fd).map(|id| (id, self.set.edges_of(fd, id)));
        let outcome = self.watch_member(&mut inner, fd);
        // The change is a reason to check its own note, and no event for the others.
        if let Some((id, before)) = known {
            self.set.keep_edges(fd, id, before | bits_of(change.filter));
        }
        if outcome.is_err()
            && let Some(member) = inner.members.get_mut(&fd)
        {
            member.notes[place] = None;
            if member.is_empty() {
                inner.members.remove(&fd);
            }
        }
        outcome
    }

    /// Reason why there is no such note.
    fn missing(self, fd: i32) -> Errno {
        match Descriptor::new(fd).map(|fd| rustix::io::fcntl_getfd(fd.as_fd()).is_ok()) {
            Some(true) => Errno::ENOENT,
            _ => Errno::EBADF,
        }
    }

    /// Whether the descriptor can have a note of the filter, and whether it is a listener of the
    /// kernel's.
    fn check_member(self, fd: i32, filter: i16) -> Result<bool, Errno> {
        match self.host.target(fd) {
            Some(Target::Socket(socket)) if filter == EVFILT_EMPTY => match socket.kind {
                Kind::Stream => Ok(false),
                Kind::Dgram => Err(Errno::EINVAL),
            },
            Some(Target::Socket(_)) => Ok(false),
            Some(Target::Set(_)) if filter == EVFILT_READ => Ok(false),
            Some(Target::Set(_)) => Err(Errno::EINVAL),
            None => {
                if filter == EVFILT_EMPTY {
                    return Err(Errno::EINVAL);
                }
                let fd = Descriptor::new(fd).ok_or(Errno::EBADF)?;
                rustix::io::fcntl_getfd(fd.as_fd())?;
                Ok(rustix::net::sockopt::socket_acceptconn(fd.as_fd()).unwrap_or(false))
            }
        }
    }

    /// Updates the epoll item of a descriptor to its notes' wishes, and checks it.
    pub(super) fn watch_member(self, inner: &mut Inner, fd: i32) -> Result<(), Errno> {
        let Some(member) = inner.members.get_mut(&fd) else {
            return Ok(());
        };
        if member.is_empty() {
            inner.members.remove(&fd);
            return match self
                .host
                .set_ctl(self.number, libc::EPOLL_CTL_DEL, fd, None)
            {
                Err(Divert::Errno(error)) if !is_gone(error) => Err(error),
                _ => Ok(()),
            };
        }
        let is_socket = matches!(self.host.target(fd), Some(Target::Socket(_)));
        let events = wanted(member, is_socket);
        let event = libc::epoll_event {
            events,
            u64: u64::from(fd.cast_unsigned()),
        };
        let first = match member.events {
            0 => libc::EPOLL_CTL_ADD,
            _ => libc::EPOLL_CTL_MOD,
        };
        member.events = events;
        let second = libc::EPOLL_CTL_ADD ^ libc::EPOLL_CTL_MOD ^ first;
        let outcome = match self.host.set_ctl(self.number, first, fd, Some(event)) {
            // The number was closed, or has become another's, since then.
            Err(Divert::Errno(Errno::ENOENT | Errno::EEXIST)) => {
                self.host.set_ctl(self.number, second, fd, Some(event))
            }
            outcome => outcome,
        };
        match outcome {
            Ok(()) => {}
            Err(Divert::Errno(error)) => return Err(error),
            Err(_) => return Err(Errno::EBADF),
        }
        if member.notes.iter().flatten().any(|note| note.is_forced) {
            self.queue_member(fd);
        }
        Ok(())
    }

    /// Queues a member for the next check, whatever has happened to it.
    fn queue_member(self, fd: i32) {
        if let Some(id) = self.target_of(fd) {
            self.set.queue_item_of(fd, id);
        }
    }

    /// Returns the identity of the object behind a number of ours.
    fn target_of(self, fd: i32) -> Option<u64> {
        Some(match self.host.target(fd)? {
            Target::Socket(socket) => socket.id,
            Target::Set(set) => set.id,
        })
    }
}

/// The item was never there, or is no more.
fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::ENOENT | Errno::EBADF)
}

/// Returns the events of a member's epoll item. The item of a socket is edge-triggered, and put
/// back explicitly; that of a kernel descriptor or of a set, whose kernel part the kernel watches,
/// only if no note wants the level.
fn wanted(member: &Member, is_socket: bool) -> u32 {
    let mut events = 0;
    let mut is_edge = true;
    for note in member.enabled() {
        events |= match note.filter {
            EVFILT_READ => bits::IN | bits::RDHUP,
            _ => bits::OUT,
        };
        is_edge &= note.is_clear() || note.fflags & crate::kqueue::NOTE_LOWAT != 0;
    }
    match is_socket || is_edge {
        true => events | EDGE,
        false => events,
    }
}

/// Returns whether a socket has had no event yet.
pub(super) fn is_fresh(socket: &crate::socket::description::Description) -> bool {
    socket.kind == Kind::Stream
        && match socket.decided() {
            None => !socket.kernel_speaks(),
            Some(Decided::Stream(_) | Decided::Listener(_) | Decided::Dgram(_)) => false,
            Some(Decided::Foreign(_)) => false,
        }
}
