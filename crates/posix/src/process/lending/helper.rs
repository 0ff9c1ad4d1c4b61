//! The helper process of a program that is about to confine itself (seccomp(2)), and so has to give
//! up its engine.
//!
//! Under a filter a program may do little more than read, write and poll, and so may every thread
//! in its memory. It therefore makes a *helper* first: a child with an engine of its own, to which
//! its connections move as they would to any child that uses them (see [`super::taking`]). From
//! then on the program has ends of `AF_UNIX` socket pairs under its descriptor numbers; each call
//! on them is the kernel's, and the helper moves the bytes. The helper lives until the program has
//! closed them all; data that the program wrote before its end is still sent.
//!
//! A connection that cannot move in time stays with the program's own steward, and then so does the
//! program's engine.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};
use slipstack_mem::thread::own as own_threads;
use slipstack_mem::{Descriptor, raised};

use crate::epoll::sets_of;
use crate::errno::Errno;
use crate::lending::lender::Lender;
use crate::lending::post::Charge;
use crate::lending::pump::{Origin, Pump};
use crate::process::Process;
use crate::process::lending::borrow::{UserKind, limit_times};
use crate::process::lending::owner::{lend, names_of};
use crate::process::lending::starting::in_place_of;
use crate::process::lending::taking::has_other_threads;
use crate::process::table::Entry;
use crate::process::table::Table;
use crate::socket::borrowed::child_message::control_pair;
use crate::socket::borrowed::{Borrowed, ReadRequest};
use crate::socket::description::{Decided, Description};
use crate::socket::kernel_socket::replace;

/// Time that the helper waits until connections may move: until the program's steward has passed on
/// what its users have written.
pub(super) const MOVE_TIME_MAX: Duration = Duration::from_millis(400);
pub(super) const MOVE_PAUSE: Duration = Duration::from_millis(4);
/// Time for which the program waits for its steward, and for threads of ours to end.
const END_TIME_MAX: Duration = Duration::from_secs(2);
/// Interval at which it is looked whether a thread is the program's.
const THREAD_LOOKS: u32 = 50;
const END_PAUSE: Duration = Duration::from_micros(200);

/// A connection that is to go to a helper.
#[derive(Debug)]
struct HelperConnection {
    socket: Arc<Description>,
    /// The end whose bytes are moved.
    ours: OwnedFd,
    /// The end for the program's numbers.
    theirs: OwnedFd,
}

/// The connections that are to go to a helper.
#[derive(Debug)]
pub struct HelperHandover {
    connections: Vec<HelperConnection>,
    /// The helper names the taken connections on its end, and the program reads that on the other.
    programs: OwnedFd,
    helpers: OwnedFd,
}

impl Process {
    /// Called before the program confines itself. `None`: it has no connections on an engine, or
    /// needs that for something else too. Otherwise a fork, [`Process::keep_for_program`] in the
    /// child and [`Process::leave_to_helper`] here must follow.
    pub fn prepare_confinement(&self) -> Option<HelperHandover> {
        if self.begin_before_confinement() {
            return None;
        }
        self.living_attachment()?;
        if self.engines.homes.is_any() || has_other_threads(THREAD_LOOKS) {
            return None;
        }
        let connections = self.movable_connections()?;
        if connections.is_empty() {
            // All connections of this engine are lent by the helper now.
            self.leave_engine();
            return None;
        }
        self.prepare_leaving(connections)
    }

    /// Puts sockets on the stack that have been bound and not been waited for, and makes what the
    /// first wait would make: the filter need not allow that. Those of a parent that may wait
    /// itself are its business. Returns whether the engine stays here for them.
    fn begin_before_confinement(&self) -> bool {
        if !self.has_intents.load(Ordering::Acquire) || self.is_session() {
            return false;
        }
        let mut has_begun = false;
        for socket in self.table.unconnected() {
            if socket.is_intent() && !socket.is_parents() {
                self.realize(&socket);
                has_begun |= !socket.is_intent();
            }
        }
        if has_begun {
            let sleepers = &self.engines.station.sleepers;
            sleepers.pool.give(sleepers.pool.take());
        }
        has_begun
    }

    fn prepare_leaving(&self, connections: Vec<Arc<Description>>) -> Option<HelperHandover> {
        let (programs, helpers) = control_pair().ok()?;
        let connections = connections.into_iter();
        let connections: Result<Vec<HelperConnection>, Errno> = connections
            .map(|it| self.make_helper_connection(it))
            .collect();
        Some(HelperHandover {
            connections: connections.ok()?,
            programs,
            helpers,
        })
    }

    /// `None`: something else is on the engine.
    fn movable_connections(&self) -> Option<Vec<Arc<Description>>> {
        let mut all = Vec::new();
        for (number, entry) in self.table.all() {
            let Entry::Socket(socket) = entry else {
                continue;
            };
            match socket.decided() {
                Some(Decided::Stream(_)) if self.lending.is_stewards(number) => {}
                Some(Decided::Stream(stream)) if stream.is_connection() => all.push(socket),
                Some(Decided::Foreign(_)) | None => {}
                Some(_) if socket.attachment().is_some() => return None,
                Some(_) => {}
            }
        }
        Some(unique(all))
    }

    fn make_helper_connection(&self, socket: Arc<Description>) -> Result<HelperConnection, Errno> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let pair = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        let (ours, theirs) = (raised(pair.0).unlisted(), raised(pair.1).unlisted());
        limit_times(&theirs, &socket)?;
        rustix::io::ioctl_fionbio(&theirs, socket.is_nonblocking())?;
        let names = names_of(&self.ids, &socket);
        // The program's calls on it are the kernel's then.
        if names.is_shut {
            rustix::net::shutdown(&theirs, Shutdown::Write)?;
        }
        self.lending.abstract_names.put(&ours, &names);
        Ok(HelperConnection {
            socket,
            ours,
            theirs,
        })
    }

    /// Takes the connections over, in the helper, names them, and moves their bytes from then on.
    pub fn keep_for_program(&'static self, leaving: HelperHandover) {
        let HelperHandover {
            connections,
            programs,
            helpers,
        } = leaving;
        drop(programs);
        let mut left: Vec<(Arc<Description>, OwnedFd)> = Vec::new();
        for connection in connections {
            // The socket is the program's, of which this is a copy: its destructor must not run.
            let id = connection.socket.id;
            std::mem::forget(connection.socket);
            left.extend(
                self.table
                    .find_lent(id)
                    .map(|socket| (socket, connection.ours)),
            );
        }
        let begun = Instant::now();
        while !left.is_empty() && begun.elapsed() < MOVE_TIME_MAX {
            let mut waiting = Vec::new();
            for (socket, ours) in left {
                match self.take_from_program(&socket) {
                    Some(id) => self.move_for_program(socket, ours, (&helpers, id)),
                    None => waiting.push((socket, ours)),
                }
            }
            left = waiting;
            if !left.is_empty() {
                std::thread::sleep(MOVE_PAUSE);
            }
        }
        self.lending.leave_stewards();
    }

    /// Returns the program's number for the connection if it has come.
    fn take_from_program(&self, socket: &Arc<Description>) -> Option<u64> {
        let Some(Decided::Foreign(it)) = socket.decided() else {
            return None;
        };
        if !self.hold_borrowed(socket, it, UserKind::WithLibrary) {
            return None;
        }
        self.take_over(socket, it, Duration::ZERO);
        socket.is_brought().then_some(it.id)
    }

    fn move_for_program(
        &'static self,
        socket: Arc<Description>,
        ours: OwnedFd,
        (helpers, id): (&OwnedFd, u64),
    ) {
        self.charge_for_program(socket, ours);
        let message = id.to_le_bytes();
        let _ = rustix::net::send(helpers, &message, SendFlags::NOSIGNAL);
    }

    /// The steward moves the connection's bytes without read requests.
    fn charge_for_program(&'static self, socket: Arc<Description>, ours: OwnedFd) {
        let Some(number) = self.steward_number(&socket) else {
            return;
        };
        self.lending.note(ours.as_raw_fd());
        lend(&socket);
        self.lending.post.note_pump();
        let mut pump = Pump::new(socket, number, ours, Origin::UNHEARD);
        pump.read(ReadRequest::All);
        self.charge(Charge::Pump(Box::new(pump)));
    }

    /// Puts the ends of the pairs under the program's numbers, waits until the helper has its
    /// connections, and gives the engine up.
    pub fn leave_to_helper(&'static self, leaving: HelperHandover, has_helper: bool) {
        let HelperHandover {
            connections,
            programs,
            helpers,
        } = leaving;
        drop(helpers);
        let mut left = Vec::new();
        for connection in connections {
            self.put_end(&connection.socket, &connection.theirs);
            left.push((connection.socket, connection.ours));
        }
        let mut gone = Vec::new();
        while has_helper && let Some(id) = receive_reply(&programs) {
            let taken = left.extract_if(.., |(socket, _)| socket.id == id);
            gone.extend(taken.map(|(socket, _)| socket));
        }
        // The steward has to learn first that the helper has them.
        let have_gone = || {
            gone.iter()
                .all(|socket| socket.has_ended.load(Ordering::Acquire))
        };
        wait_until(have_gone);
        let stays = !left.is_empty();
        for (socket, ours) in left {
            self.charge_for_program(socket, ours);
        }
        // From then on the program's waits are the kernel's.
        self.end_all_sharing();
        match !stays && wait_until(|| self.lending.post.is_retired()) {
            true => self.leave_engine(),
            false => self.lending.is_confined.store(true, Ordering::Relaxed),
        }
    }

    fn end_all_sharing(&self) {
        for (_, entry) in self.table.all() {
            if let Entry::Set(set) = entry
                && set.common().is_some()
            {
                let _ = self.lending.end_sharing(&set);
            }
        }
    }

    /// Puts an end of a pair under all numbers of the connection.
    fn put_end(&self, old: &Arc<Description>, end: &OwnedFd) {
        let names = names_of(&self.ids, old);
        if names.local.is_none() || names.remote.is_none() {
            return;
        }
        let it = Borrowed::received(&names);
        let (new, numbers) = in_place_of(old, self.ids.next(), names.inode, it);
        new.has_kernel.store(true, Ordering::Release);
        let sets = sets_of(old);
        for number in numbers.into_iter().filter_map(Descriptor::new) {
            let _ = replace(number, end);
            self.install(number, &new);
        }
        self.lending.watch_instead(sets, old, &new);
    }

    /// Gives the engine up, on which nothing is any more, and waits until no thread of ours is
    /// left.
    fn leave_engine(&self) {
        self.lending.is_confined.store(true, Ordering::Relaxed);
        if let Some(attachment) = self.engines.first() {
            attachment.lose();
            self.engines.end_sessions(std::slice::from_ref(&attachment));
            self.on_engine_death(&attachment);
        }
        wait_until(|| own_threads().next().is_none());
    }
}

/// The next connection that the helper has; `None`: it has no more, or has ended.
fn receive_reply(programs: &OwnedFd) -> Option<u64> {
    let mut message = [0; 8];
    let len = retry_on_intr(|| rustix::net::recv(programs, &mut message[..], RecvFlags::empty()));
    matches!(len, Ok((_, 8))).then(|| u64::from_le_bytes(message))
}

fn wait_until(is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > END_TIME_MAX {
            return false;
        }
        std::thread::sleep(END_PAUSE);
    }
    true
}

fn unique(mut all: Vec<Arc<Description>>) -> Vec<Arc<Description>> {
    all.sort_by_key(|socket| socket.id);
    all.dedup_by_key(|socket| socket.id);
    all
}

impl Table {
    /// Finds the connection that the program knows by this number.
    pub(crate) fn find_lent(&self, id: u64) -> Option<Arc<Description>> {
        self.all().into_iter().find_map(|(_, entry)| {
            let Entry::Socket(socket) = entry else {
                return None;
            };
            let is_it = matches!(socket.decided(), Some(Decided::Foreign(it)) if it.id == id);
            is_it.then_some(socket)
        })
    }
}
