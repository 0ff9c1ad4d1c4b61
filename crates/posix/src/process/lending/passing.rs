//! Connections that go to another program: over a unix socket (SCM_RIGHTS), or by the file actions
//! of `posix_spawn`.
//!
//! The other program gets one end of a pair, and a steward of ours moves the bytes, as for a forked
//! child. It cannot signal that it wants to read, so the steward reads from the beginning where the
//! receiver is expected to. A bound socket is passed as a kernel socket from which the other
//! program makes its own.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use slipstack_mem::{Descriptor, raised};

use crate::addr::Family;
use crate::addr::stack_addr;
use crate::errno::Errno;
use crate::lending::lender::Lender;
use crate::lending::nameplate;
use crate::lending::post::Charge;
use crate::lending::pump::{Origin, Pump};
use crate::process::Process;
use crate::process::lending::borrow::Reach;
use crate::process::lending::starting::is_lendable;
use crate::process::table::Entry;
use crate::socket::borrowed::{Borrowed, Wish};
use crate::socket::description::{Decided, Description, Kind, New};
use crate::socket::kernel_socket::kernel_name;

/// A connection on its way to another program.
#[derive(Debug)]
struct Passage {
    socket: Arc<Description>,
    ours: OwnedFd,
    theirs: OwnedFd,
    reads: bool,
}

/// Connections on their way to another program, each once.
#[derive(Debug, Default)]
pub struct Passing(Vec<Passage>);

impl Passing {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Process {
    /// The number that another program is to get in place of `fd`; `None`: `fd` itself will do.
    /// [`Process::end_passing`] must follow. `reads`: it is to read from it.
    pub fn prepare_passing(&self, passing: &mut Passing, fd: i32, reads: bool) -> Option<i32> {
        let socket = self.table.socket(fd)?;
        match socket.decided() {
            Some(Decided::Stream(_)) => {
                let is_it = |passage: &&mut Passage| Arc::ptr_eq(&passage.socket, &socket);
                if let Some(passage) = passing.0.iter_mut().find(is_it) {
                    passage.reads |= reads;
                    return Some(passage.theirs.as_raw_fd());
                }
                let passage = self.make_passage(socket, reads).ok()?;
                let number = passage.theirs.as_raw_fd();
                passing.0.push(passage);
                Some(number)
            }
            // The descriptor number holds a kernel datagram socket.
            Some(Decided::Foreign(it)) if socket.kind == Kind::Dgram && !it.is_taken() => {
                self.note_mode(&socket);
                None
            }
            Some(Decided::Foreign(it)) => {
                // From now on another program has the pair too.
                it.turns.never_ask();
                if self.hold_borrowed(&socket, it, Reach::Unheard) {
                    self.take_borrowed(&socket, it, Wish::if_reads(reads));
                }
                None
            }
            None if !is_bound(&socket) => {
                socket.materialize_for_exec(self);
                None
            }
            None | Some(Decided::Listener(_) | Decided::Dgram(_)) => {
                self.note_mode(&socket);
                None
            }
        }
    }

    /// Leaves word in the kernel's part, which never blocks itself, whether the socket does.
    fn note_mode(&self, socket: &Description) {
        if let Some(number) = socket.kernel_number() {
            let mode = i32::from(socket.is_nonblocking()).to_ne_bytes();
            let (fd, level) = (number.number(), libc::SOL_SOCKET);
            let _ = self.kernel.setsockopt(fd, level, MODE, &mode);
        }
    }

    fn make_passage(&self, socket: Arc<Description>, reads: bool) -> Result<Passage, Errno> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let pair = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        let (ours, theirs) = pair;
        let names = self.names_of(&socket);
        if let (Some(local), Some(remote)) = (names.local, names.remote) {
            let inode = names.inode;
            self.lending.nameplates.put(&ours, (local, remote), inode);
        }
        if socket.is_nonblocking() {
            rustix::io::ioctl_fionbio(&theirs, true)?;
        }
        // Before the program can close it.
        socket.lent.add();
        Ok(Passage {
            socket,
            ours,
            theirs: raised(theirs),
            reads,
        })
    }

    /// They have gone, and from now on their bytes are moved; or they have not.
    pub fn end_passing(&'static self, passing: Passing, is_gone: bool) {
        for passage in passing.0 {
            let Passage {
                socket,
                ours,
                theirs,
                reads,
            } = passage;
            drop(theirs);
            let number = is_gone.then(|| self.steward_number(&socket)).flatten();
            let Some(number) = number else {
                self.take_back(&socket);
                continue;
            };
            self.lending.post.note_pump();
            let mut pump = Pump::new(socket, number, raised(ours), Origin::UNHEARD);
            if reads {
                pump.read(Wish::All);
            }
            self.charge(Charge::Pump(pump));
        }
    }

    /// The numbers of connections that a new program inherits as they are.
    pub fn inherited_connections(&self) -> Vec<i32> {
        let is_inherited = |number: i32, entry: &Entry| {
            let Entry::Socket(socket) = entry else {
                return false;
            };
            is_lendable(socket)
                && Descriptor::new(number)
                    .and_then(|number| rustix::io::fcntl_getfd(number.as_fd()).ok())
                    .is_some_and(|flags| !flags.contains(rustix::io::FdFlags::CLOEXEC))
        };
        let all = self.table.all().into_iter();
        all.filter(|(number, entry)| is_inherited(*number, entry))
            .map(|(number, _)| number)
            .collect()
    }

    /// Another program has sent number `fd`: a connection that it lends, or a socket that it has
    /// bound.
    pub fn receive(&self, fd: i32) {
        let Some(number) = Descriptor::new(fd) else {
            return;
        };
        if let Some(((local, remote), inode)) = nameplate::read(number) {
            let family = match local {
                std::net::SocketAddr::V4(_) => Family::V4,
                std::net::SocketAddr::V6(_) => Family::V6,
            };
            let flags = rustix::fs::fcntl_getfl(number.as_fd());
            let socket = Arc::new(Description::new(New {
                id: self.next_id(),
                family,
                kind: Kind::Stream,
                protocol: 0,
                is_nonblocking: flags
                    .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK)),
            }));
            socket.has_kernel.store(true, Ordering::Release);
            socket.set_inode(inode);
            let borrowed = Borrowed::received(local, remote);
            let _ = socket.decided.set(Decided::Foreign(borrowed));
            self.install(number, &socket);
        } else if let Some(letter) = letter_of(number).filter(|_| self.has_part_in(number)) {
            let mut mode = [0; 4];
            let told = self
                .kernel
                .getsockopt(fd, libc::SOL_SOCKET, MODE, &mut mode);
            let is_nonblocking = told.is_ok() && mode != [0; 4];
            let ending = if is_nonblocking { "n" } else { "" };
            self.inherit(&format!("{letter}{fd}{ending}"));
        }
    }
}

impl Process {
    /// Programs bind freely too, to addresses of the kernel's.
    fn has_part_in(&self, number: Descriptor) -> bool {
        kernel_name(number).is_some_and(|addr| {
            let addr = stack_addr(addr);
            addr.ip().is_unspecified() || addr.ip().is_multicast() || self.network.is_own(addr)
        })
    }
}

/// SO_SELECT_ERR_QUEUE (asm-generic/socket.h), which means nothing to sockets that nobody asks for
/// errors.
const MODE: i32 = 45;

fn is_bound(socket: &Description) -> bool {
    socket.cold.lock().bound.is_some()
}

/// Whether a descriptor that has come from elsewhere means something to [`Process::receive`].
#[must_use]
pub fn is_passed(fd: i32) -> bool {
    Descriptor::new(fd)
        .is_some_and(|number| nameplate::read(number).is_some() || letter_of(number).is_some())
}

/// Returns the letter by which [`Process::inherit`] names a socket of the kernel's that the stack
/// has a part in: such are bound freely.
fn letter_of(number: Descriptor) -> Option<char> {
    if !sockopt::ip_freebind(number.as_fd()).unwrap_or(false) {
        return None;
    }
    let is_connected = rustix::net::getpeername(number.as_fd()).is_ok();
    match sockopt::socket_type(number.as_fd()).ok()? {
        SocketType::DGRAM => Some('u'),
        SocketType::STREAM if sockopt::socket_acceptconn(number.as_fd()).ok()? => Some('l'),
        SocketType::STREAM if !is_connected => Some('b'),
        _ => None,
    }
}
