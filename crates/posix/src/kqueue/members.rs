//! Events of a descriptor's notes: filt_soread(), filt_sowrite(), filt_soempty() and so on.

use std::sync::Arc;

use slipstack_mem::Descriptor;

use crate::epoll::Target;
use crate::kqueue::at::KqueueRef;
use crate::kqueue::change::is_fresh;
use crate::kqueue::note::{After, Note};
use crate::kqueue::queue::Inner;
use crate::kqueue::{EV_EOF, EVFILT_EMPTY, EVFILT_READ, Kevent, NOTE_LOWAT};
use crate::ready::bits;
use crate::socket::description::{Decided, Description, Kind};

const FOR_READING: u32 = bits::IN | bits::RDHUP | bits::HUP | bits::ERR;
const FOR_WRITING: u32 = bits::OUT | bits::HUP | bits::ERR;

/// The bits that a filter is about.
pub(super) fn bits_of(filter: i16) -> u32 {
    match filter {
        EVFILT_READ => FOR_READING,
        _ => FOR_WRITING,
    }
}

/// State of a descriptor at a look.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) fd: i32,
    /// Epoll's bits.
    pub(super) ready: u32,
    /// The events that are new.
    pub(super) edges: u32,
    /// The member's object on our side; `None`: the kernel's.
    pub(super) target: Option<&'a Target>,
}

/// The event of a note.
struct NoteEvent {
    flags: u16,
    fflags: u32,
    data: i64,
}

/// The result of checking a descriptor's notes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    pub(super) count: usize,
    /// A note is returned again as long as its condition holds.
    pub(super) is_level: bool,
    /// Set if the program's buffer had no room for all events.
    pub(super) is_cut: bool,
    /// The notes are others than before.
    pub(super) has_changed: bool,
}

impl KqueueRef<'_> {
    /// Returns the events of a descriptor's notes.
    pub(super) fn report_member(
        self,
        inner: &mut Inner,
        look: Look<'_>,
        put: &mut dyn FnMut(Kevent) -> bool,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let Some(member) = inner.members.get_mut(&look.fd) else {
            return outcome;
        };
        let is_kernels_listener = member.is_kernels_listener;
        let first = std::mem::take(&mut member.first);
        for at in 0..member.notes.len() {
            let at = (first + at) % member.notes.len();
            let Some(note) = member.notes[at].as_mut().filter(|note| note.is_enabled) else {
                continue;
            };
            note.is_active |= look.edges & bits_of(note.filter) != 0;
            if outcome.is_cut {
                continue;
            }
            let reported = self.report_of(note, look, is_kernels_listener);
            let Some(reported) = reported else {
                note.is_active = false;
                continue;
            };
            if !put(note.event(reported.flags, reported.fflags, reported.data)) {
                outcome.is_cut = true;
                member.first = at;
                continue;
            }
            outcome.count += 1;
            note.is_active = false;
            match note.on_reported() {
                After::Level => outcome.is_level = true,
                After::Edge => {}
                After::Disabled => outcome.has_changed = true,
                After::Gone => {
                    member.notes[at] = None;
                    outcome.has_changed = true;
                }
            }
        }
        outcome
    }

    fn report_of(
        self,
        note: &Note,
        look: Look<'_>,
        is_kernels_listener: bool,
    ) -> Option<NoteEvent> {
        let of_filter = bits_of(note.filter);
        if note.is_forced {
            let data = self.data_of(note, look, is_kernels_listener);
            return Some(NoteEvent {
                flags: 0,
                fflags: 0,
                data,
            });
        }
        if look.ready & of_filter == 0 || (note.is_clear() && !note.is_active) {
            return None;
        }
        if let Some(Target::Socket(socket)) = look.target
            && is_fresh(socket)
        {
            return None;
        }
        let data = self.data_of(note, look, is_kernels_listener);
        let is_over = match note.filter {
            EVFILT_READ => look.ready & (bits::RDHUP | bits::HUP) != 0,
            _ => look.ready & (bits::HUP | bits::ERR) != 0,
        };
        let error = match look.target {
            Some(Target::Socket(socket)) if look.ready & bits::ERR != 0 => error_of(socket),
            _ => 0,
        };
        if note.filter == EVFILT_EMPTY {
            return (data == 0).then_some(NoteEvent {
                flags: if is_over { EV_EOF } else { 0 },
                fflags: 0,
                data,
            });
        }
        let is_enough = match note.fflags & NOTE_LOWAT != 0 {
            true => data >= note.data,
            false => look.ready & (bits::IN | bits::OUT) & of_filter != 0,
        };
        (is_over || error != 0 || is_enough).then_some(NoteEvent {
            flags: if is_over { EV_EOF } else { 0 },
            fflags: error,
            data,
        })
    }

    /// Bytes that may be read or written, or connections that may be accepted.
    fn data_of(self, note: &Note, look: Look<'_>, is_kernels_listener: bool) -> i64 {
        let count = match (look.target, note.filter) {
            (Some(Target::Socket(socket)), EVFILT_READ) => self.readable(socket),
            (Some(Target::Socket(socket)), EVFILT_EMPTY) => match socket.decided() {
                Some(Decided::Stream(stream)) => stream.await_acked(),
                _ => 0,
            },
            (Some(Target::Socket(socket)), _) => writable(socket),
            (Some(Target::Set(_)), _) => 1,
            (None, EVFILT_READ) if is_kernels_listener => self.waiting_in_kernel(look.fd),
            (None, EVFILT_READ) => readable_in_kernel(look.fd, look.ready),
            (None, _) => writable_in_kernel(look.fd),
        };
        i64::try_from(count).unwrap_or(i64::MAX)
    }

    fn readable(self, socket: &Arc<Description>) -> usize {
        match socket.decided() {
            Some(Decided::Stream(stream)) => stream.unread(),
            Some(Decided::Dgram(dgram)) => dgram.next_len().unwrap_or(0),
            Some(Decided::Listener(listener)) => {
                let number = socket.kernel_number().filter(|_| socket.kernel_speaks());
                let in_kernel = number.map_or(0, |number| self.waiting_in_kernel(number.number()));
                listener.waiting() + in_kernel
            }
            Some(Decided::Foreign(_)) | None => {
                let number = socket.kernel_number();
                number.map_or(0, |number| readable_in_kernel(number.number(), 0))
            }
        }
    }

    /// Connections that wait at a listener of the kernel's (tcpi_unacked of tcp_get_info()).
    fn waiting_in_kernel(self, fd: i32) -> usize {
        const AT: usize = 24;
        let mut info = [0; AT + 4];
        let reported =
            self.host
                .kernel()
                .getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info);
        match (reported, info[AT..].try_into()) {
            (Ok(len), Ok(word)) if len == info.len() => u32::from_ne_bytes(word) as usize,
            _ => 1,
        }
    }
}

/// Assumed room of a kernel send buffer that cannot be queried.
const KERNEL_ROOM: usize = 4096;
/// Room of a datagram socket, which has no buffer that fills.
const DATAGRAM_ROOM: usize = 65_507;

fn writable(socket: &Description) -> usize {
    match socket.decided() {
        Some(Decided::Stream(stream)) => stream.room(),
        _ if socket.kind == Kind::Dgram => DATAGRAM_ROOM,
        _ => 0,
    }
}

fn readable_in_kernel(fd: i32, ready: u32) -> usize {
    let count = Descriptor::new(fd).and_then(|fd| rustix::io::ioctl_fionread(fd.as_fd()).ok());
    match count {
        Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
        // An eventfd or similar: readable, without a length.
        None => usize::from(ready & bits::IN != 0),
    }
}

fn writable_in_kernel(fd: i32) -> usize {
    let Some(fd) = Descriptor::new(fd) else {
        return 0;
    };
    rustix::net::sockopt::socket_send_buffer_size(fd.as_fd()).unwrap_or(KERNEL_ROOM)
}

/// so_error, which stays: FreeBSD's number.
fn error_of(socket: &Description) -> u32 {
    let error = match socket.decided() {
        Some(Decided::Stream(stream)) => stream.peek_error(),
        Some(Decided::Dgram(dgram)) => dgram.peek_error(),
        _ => None,
    };
    error.map_or(0, |error| error.freebsd().cast_unsigned())
}

impl KqueueRef<'_> {
    /// Re-arms the member's item after a check so that the next event is seen.
    pub(super) fn settle_member(self, inner: &mut Inner, fd: i32, outcome: Outcome) {
        let Some(member) = inner.members.get(&fd) else {
            return;
        };
        // The item of a socket only tells its notes that a check is due.
        let is_socket = matches!(self.host.target(fd), Some(Target::Socket(_)));
        let is_due = match is_socket {
            true => member.is_empty(),
            false => outcome.has_changed || (outcome.is_level && member.is_edge()),
        };
        if is_due {
            let _ = self.watch_member(inner, fd);
        }
    }
}
