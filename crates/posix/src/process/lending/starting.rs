//! Connections that a new program has from its predecessor under the same numbers (`exec`), or from
//! the process that started it (`posix_spawn`).
//!
//! A text describes its numbers (see [`Process::inherit`]): `h5n/ID/CONTROL/INODE/LOCAL/REMOTE` is
//! a connection that no process has used yet, `d5n/…` the same for a datagram socket,
//! `c5/ID/TOKEN/CONTROL/STATE/INODE/LOCAL/REMOTE` the end of a pair, `c5` one without a control
//! socket to its steward. STATE is that of a [`LeftState`]. CONTROL is a number, with `b` behind it
//! if another process than the owner has made the socket, a point and the secret of the owner's
//! heirs: if the owner is killed, who asks for the connection must know it.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{SocketType, sockopt};
use slipstack_mem::Descriptor;

use crate::addr::Family;
use crate::lending::abstract_name;
use crate::lending::fork::Fork;
use crate::lending::post::Charge;
use crate::lending::{StewardSockets, control_name};
use crate::process::Process;
use crate::process::engines::Engines;
use crate::process::lending::borrow::UserKind;
use crate::process::lending::passing::learn_times;
use crate::process::lending::taking::has_other_threads;
use crate::process::lending::word::read_word;
use crate::socket::borrowed::Names;
use crate::socket::borrowed::control::Control;
use crate::socket::borrowed::{Borrowed, LeftState, ReadRequest};
use crate::socket::description::{Decided, Description, Kind, New};

/// Connections for a program that is about to be spawned.
#[derive(Debug)]
pub struct SpawnLending {
    fork: Fork,
    described: Vec<String>,
}

impl SpawnLending {
    /// Returns the words for the new program.
    #[must_use]
    pub fn described(&self) -> &[String] {
        &self.described
    }

    /// The numbers that it must find open beside those that it was given.
    #[must_use]
    pub fn controls(&self) -> Vec<i32> {
        let own = self
            .fork
            .control
            .iter()
            .map(|(_, childs)| childs.as_raw_fd());
        let branches = self.fork.branches.iter().map(|it| it.childs.as_raw_fd());
        own.chain(branches).collect()
    }
}

/// Connections lent to a program that is started while this exists, by a call that does not say
/// when it has begun: if it never does, they come back when the control sockets close.
#[derive(Debug)]
pub struct LentToShell {
    described: Vec<String>,
    /// The program's ends of control sockets, which it inherits.
    controls: Vec<OwnedFd>,
    process: &'static Process,
}

impl LentToShell {
    /// Returns the words for the new program.
    #[must_use]
    pub fn described(&self) -> &[String] {
        &self.described
    }
}

impl Drop for LentToShell {
    fn drop(&mut self) {
        let controls = self.controls.drain(..);
        controls.for_each(|it| self.process.lending.close_listed(it));
    }
}

impl Process {
    /// Lends the connections under `numbers` to the programs that are started until the result is
    /// dropped. A program that another thread starts meanwhile keeps them lent for as long as it
    /// runs.
    #[must_use]
    pub fn lend_to_shell(&'static self, numbers: &[i32]) -> Option<LentToShell> {
        let copies: Vec<(i32, i32)> = numbers.iter().map(|number| (*number, *number)).collect();
        let SpawnLending {
            mut fork,
            described,
        } = self.prepare_spawn_lending(&copies)?;
        let mut controls = Vec::new();
        if let Some((control, childs)) = fork.control.take() {
            controls.push(childs);
            let shared = std::mem::take(&mut fork.shared);
            self.charge(Charge::child(control, shared));
        }
        controls.extend(fork.branches.drain(..).map(|branch| branch.childs));
        for control in &controls {
            let _ = fcntl_setfd(control, FdFlags::empty());
        }
        Some(LentToShell {
            described,
            controls,
            process: self,
        })
    }

    /// Returns the texts about sockets that are no connections, for a program which finds `from`
    /// under the numbers `to`. [`Process::end_handing`] follows if it has been started.
    #[must_use]
    pub fn describe_handed(&self, copies: &[(i32, i32)]) -> Vec<String> {
        let describe = |(from, to): &(i32, i32)| {
            let socket = self.table.socket(*from)?;
            self.describe_unconnected(&socket, *to)
        };
        let mut all: Vec<String> = copies.iter().filter_map(describe).collect();
        if !all.is_empty() {
            all.push(self.describe_family());
        }
        all
    }

    /// Another program has these sockets, too, and may be the one that waits on them.
    pub fn end_handing(&self, numbers: impl Iterator<Item = i32>) {
        let sockets: Vec<_> = numbers.filter_map(|it| self.table.socket(it)).collect();
        self.leave_listeners(&sockets);
        self.describe_intents(&sockets);
    }

    /// Whether number `fd` is a connection that a program with the library may be given as it is.
    #[must_use]
    pub fn is_connection(&self, fd: i32) -> bool {
        self.table
            .socket(fd)
            .is_some_and(|socket| is_lendable(&socket))
    }

    /// Lends connections to a program that is about to be spawned and finds `from` under the
    /// numbers `to`. [`Process::end_spawn_lending`] must follow.
    #[must_use]
    pub fn prepare_spawn_lending(&self, copies: &[(i32, i32)]) -> Option<SpawnLending> {
        let wanted = copies
            .iter()
            .filter_map(|(from, _)| self.table.socket(*from));
        let wanted: Vec<Arc<Description>> = wanted.collect();
        wanted.iter().for_each(|it| self.bring_if_left(it));
        let _bringing = self.lending.bringing.lock();
        let fork = self.prepare_child(wanted.iter())?;
        // Under the lock that a fork takes first: a child that another thread forks before the
        // program has begun closes them.
        fork.ends().for_each(|number| self.lending.note(number));
        let mut described = Vec::new();
        for (from, to) in copies {
            let Some(socket) = self.table.socket(*from) else {
                continue;
            };
            self.leave_word_of_lent(&socket);
            let item = match socket.decided() {
                Some(Decided::Stream(_) | Decided::Dgram(_)) => {
                    let found = fork.names.binary_search_by_key(&socket.id, |it| it.id);
                    let names = found.ok().map(|at| &fork.names[at]);
                    let control = fork.control.as_ref().map(|(_, childs)| childs.as_raw_fd());
                    names.zip(control).map(|(names, control)| {
                        let name = control_name(control, false, self.engines.attach.heirs());
                        held(&socket, *to, names, &name)
                    })
                }
                Some(Decided::Foreign(it)) => {
                    let branch = fork.branches.iter().find(|branch| {
                        let of = it.control();
                        of.is_some_and(|of| Arc::ptr_eq(&of, &branch.of))
                    });
                    Some(borrowed(
                        (&socket, self.ids.inode_of(&socket)),
                        it,
                        *to,
                        (
                            branch.map(|it| {
                                self.engines.way_name(&it.of, it.childs.as_raw_fd(), true)
                            }),
                            None,
                        ),
                    ))
                }
                _ => None,
            };
            described.extend(item);
        }
        Some(SpawnLending { fork, described })
    }

    /// The program has been started, or not.
    pub fn end_spawn_lending(&'static self, lending: SpawnLending, is_started: bool) {
        let Fork {
            control,
            shared,
            branches,
            ..
        } = lending.fork;
        let branches = branches.into_iter().map(|it| it.childs);
        branches.for_each(|it| self.lending.close_listed(it));
        let Some((control, childs)) = control else {
            return;
        };
        self.lending.close_listed(childs);
        let charge = Charge::child(control, shared);
        match is_started {
            true => self.charge(charge),
            false => charge.refuse(self),
        }
    }

    /// Returns the text about a borrowed connection under `number`, before `exec`. `hears`: the new
    /// program has the library.
    pub(crate) fn describe_borrowed(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        number: i32,
        hears: bool,
    ) -> Option<String> {
        // The text for the new program has the counts of bytes as they are now: bytes that another
        // thread reads or writes before the `exec` would be missing from them, and the counts of
        // a child that shares this memory (CLONE_VM) are not of its own descriptors.
        if !hears || !self.ids.are_of_this_process() || has_other_threads(1) {
            it.stop_counting(&*self.kernel, socket);
        }
        if !hears {
            // The descriptor number holds a kernel datagram socket.
            if socket.kind == Kind::Dgram {
                return None;
            }
            if self.hold_borrowed(socket, it, UserKind::WithoutLibrary)
                && number <= libc::STDERR_FILENO
            {
                self.take_borrowed(socket, it, ReadRequest::All);
            }
            return None;
        }
        self.leave_word_of_lent(socket);
        let control = it.control().map(|control| {
            let _ = fcntl_setfd(control.end(), FdFlags::empty());
            self.engines
                .way_name(&control, control.number(), control.is_branch())
        });
        let named = (&**socket, self.ids.inode_of(socket));
        let handed = it.sent.leave().and_then(|left| self.lending.hand(&left));
        Some(borrowed(named, it, number, (control, handed)))
    }

    /// Leaves word in the kernel's part of a datagram socket that is lent to another program, if
    /// that finds it under the socket's number.
    fn leave_word_of_lent(&self, socket: &Description) {
        let remote = match socket.decided() {
            Some(Decided::Dgram(dgram)) => *dgram.remote.lock(),
            Some(Decided::Foreign(it)) if socket.kind == Kind::Dgram && !it.is_taken() => {
                it.remote()
            }
            _ => return,
        };
        // One that is on its way in a message reads its peer there, too.
        self.learn_of_borrowed(socket);
        self.leave_word(socket, socket.kernel_number(), remote);
    }

    /// A connection that is another process's and has not been used by this one.
    pub(crate) fn inherit_held(
        &self,
        item: &str,
        kind: Kind,
        steward_sockets: &mut StewardSockets,
    ) -> Option<()> {
        let mut parts = item.splitn(4, '/');
        let mut part = || parts.next();
        let number = part()?;
        let is_nonblocking = number.ends_with('n');
        let number = Descriptor::new(number.trim_end_matches('n').parse().ok()?)?;
        rustix::io::fcntl_getfd(number.as_fd()).ok()?;
        let id = part()?.parse().ok()?;
        let control = self.lending.way(part()?, steward_sockets)?;
        let names = Names::parse(id, part()?)?;
        let key = (id, control.number());
        if let Some(socket) = steward_sockets.held.get(&key) {
            self.install(number, socket);
            return Some(());
        }
        let it = Borrowed::new(id, Some(&names), Some(control), None);
        let socket = foreign(self.ids.next(), it, kind, is_nonblocking);
        socket.set_inode(names.inode);
        // A datagram socket has the kernel's part under its number.
        let has_kernel = kind == Kind::Dgram;
        socket.has_kernel.store(has_kernel, Ordering::Release);
        if has_kernel {
            self.learn_from_kernel(&socket, number);
            socket.note_v6_only(number);
            if let Some(word) = read_word(&*self.kernel, number.number()) {
                word.apply(&socket);
                if let Some(Decided::Foreign(it)) = socket.decided() {
                    it.note_options();
                }
            }
        }
        if has_kernel
            && let Some(own) = self.network.own_datagrams(&socket, number)
            && let Some(Decided::Foreign(it)) = socket.decided()
        {
            it.keep_own(Box::new(own));
        }
        self.install(number, &socket);
        steward_sockets.held.insert(key, socket);
        Some(())
    }

    /// The end of a pair, with the way to its steward if there is one.
    pub(crate) fn inherit_taken(
        &self,
        item: &str,
        steward_sockets: &mut StewardSockets,
    ) -> Option<()> {
        let mut parts = item.splitn(6, '/');
        let fd: i32 = parts.next()?.parse().ok()?;
        let Some(id) = parts.next() else {
            return self.inherit_end(fd);
        };
        let (id, token) = (id.parse().ok()?, parts.next()?.parse().ok()?);
        let (way, state) = (parts.next()?, LeftState::read(parts.next()?));
        let names = Names::parse(id, parts.next()?)?;
        let number = Descriptor::new(fd)?;
        let Some(control) = self.lending.way(way, steward_sockets) else {
            state.give_up(&*self.kernel, fd);
            return None;
        };
        let key = (id, token, control.number());
        if let Some(socket) = steward_sockets.taken.get(&key) {
            self.install(number, socket);
            return Some(());
        }
        let kind = match sockopt::socket_type(number.as_fd()).ok()? {
            SocketType::SEQPACKET => Kind::Dgram,
            _ => Kind::Stream,
        };
        let flags = rustix::fs::fcntl_getfl(number.as_fd()).ok()?;
        let it = Borrowed::new(id, Some(&names), Some(control), Some(token));
        state.apply(&it);
        let is_nonblocking = flags.contains(rustix::fs::OFlags::NONBLOCK);
        let socket = foreign(self.ids.next(), it, kind, is_nonblocking);
        socket.set_inode(names.inode);
        socket.has_kernel.store(true, Ordering::Release);
        learn_times(number, &socket);
        self.install(number, &socket);
        steward_sockets.taken.insert(key, socket);
        Some(())
    }

    /// The end of a pair without a way to its steward.
    fn inherit_end(&self, fd: i32) -> Option<()> {
        let number = Descriptor::new(fd)?;
        let (names, _) = abstract_name::read(number)?;
        let flags = rustix::fs::fcntl_getfl(number.as_fd()).ok()?;
        let is_nonblocking = flags.contains(rustix::fs::OFlags::NONBLOCK);
        let socket = foreign(
            self.ids.next(),
            Borrowed::received(&names),
            Kind::Stream,
            is_nonblocking,
        );
        socket.set_inode(names.inode);
        socket.has_kernel.store(true, Ordering::Release);
        learn_times(number, &socket);
        self.install(number, &socket);
        Some(())
    }
}

fn held(socket: &Description, number: i32, names: &Names, control: &str) -> String {
    let letter = match socket.kind {
        Kind::Stream => 'h',
        Kind::Dgram => 'd',
    };
    let mode = if socket.is_nonblocking() { "n" } else { "" };
    let (id, rest) = (names.id, names.text());
    format!("{letter}{number}{mode}/{id}/{control}/{rest}")
}

fn borrowed(
    (socket, inode): (&Description, u64),
    it: &Borrowed,
    number: i32,
    (control, handed): (Option<String>, Option<i32>),
) -> String {
    let Some(control) = control else {
        return format!("c{number}");
    };
    let names = Names {
        id: it.id,
        inode,
        local: it.local,
        remote: it.remote(),
        is_shut: it.is_shut(),
    };
    match it.token() {
        Some(token) => {
            let (id, state, rest) = (it.id, LeftState::text(it, handed), names.text());
            format!("c{number}/{id}/{token}/{control}/{state}/{rest}")
        }
        None => held(socket, number, &names, &control),
    }
}

impl Engines {
    /// Returns the name for a new program of a socket under `number` which leads to the same owner
    /// as `control`.
    fn way_name(&self, control: &Control, number: i32, is_branch: bool) -> String {
        let heirs = control.heirs().unwrap_or_else(|| self.attach.heirs());
        control_name(number, is_branch, heirs)
    }
}

/// Whether a program with the library may be given it as it is.
pub(super) fn is_lendable(socket: &Description) -> bool {
    match socket.decided() {
        Some(Decided::Stream(_) | Decided::Foreign(_)) => true,
        Some(Decided::Dgram(dgram)) => dgram.is_served(),
        Some(Decided::Listener(_)) | None => false,
    }
}

pub(crate) fn foreign(id: u64, it: Borrowed, kind: Kind, is_nonblocking: bool) -> Arc<Description> {
    let family = match it.local {
        Some(SocketAddr::V6(_)) => Family::V6,
        Some(SocketAddr::V4(_)) | None => Family::V4,
    };
    let new = New {
        id,
        family,
        kind,
        protocol: 0,
        is_nonblocking,
    };
    Arc::new(Description::decided_as(new, Decided::Foreign(it)))
}

/// A connection of another process in place of `old`, which has been this process's. Returns it
/// with the numbers that it is to have.
pub(super) fn in_place_of(
    old: &Description,
    id: u64,
    inode: u64,
    it: Borrowed,
) -> (Arc<Description>, Vec<i32>) {
    let new = Description::like(old, id);
    new.set_inode(inode);
    let _ = new.decided.set(Decided::Foreign(it));
    let numbers = {
        let cold = old.cold.lock();
        let mut fresh = new.cold.lock();
        fresh.options = cold.options.clone();
        (fresh.bound, fresh.owner) = (cold.bound, cold.owner);
        cold.numbers.clone()
    };
    (Arc::new(new), numbers)
}
