//! The lending state of a process.

use std::collections::HashMap;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::io::{self, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{Shutdown, SocketType, sockopt};
use slipstack_channel::control::text_file;
use slipstack_mem::{Descriptor, Lock, PrivateFd, raised, raised_copy};

use crate::epoll::{self, Set, Target, add_kernel_part, remove_kernel_part, sets_of};
use crate::errno::Errno;
use crate::idhash::BuildIdHasher;
use crate::lending::abstract_name;
use crate::lending::callers::Callers;
use crate::lending::fork::Fork;
use crate::lending::in_use::InUse;
use crate::lending::post;
use crate::ready::Awaited;
use crate::socket::borrowed::Borrowed;
use crate::socket::borrowed::child_message::receive_with_ends;
use crate::socket::borrowed::control::{Control, Ends, Received};
use crate::socket::description::Description;
use crate::socket::kernel_socket::{replace, set_nonblocking};

/// Behind the number of a control socket that the owner has not made.
const BRANCH: char = 'b';

/// Returns the name of a control socket in the text for a new program. `is_branch`: another process
/// than the owner has made it. `heirs`: the secret of the owner's heirs.
pub(crate) fn control_name(number: i32, is_branch: bool, heirs: u64) -> String {
    match is_branch {
        true => format!("{number}{BRANCH}.{heirs:x}"),
        false => format!("{number}.{heirs:x}"),
    }
}

/// Control sockets and sockets that a text has named so far.
#[derive(Debug, Default)]
pub(crate) struct StewardSockets {
    /// Control sockets to stewards, by their numbers in the text.
    ways: Vec<(i32, Arc<Control>)>,
    /// Sockets that have not been used, by their stewards' numbers for them and the control
    /// socket's number: one may have several descriptors.
    pub(crate) held: HashMap<(u64, i32), Arc<Description>, BuildIdHasher>,
    /// Sockets that have been used, in the same way, and by the tokens of their pairs.
    pub(crate) taken: HashMap<(u64, u64, i32), Arc<Description>, BuildIdHasher>,
}

/// An end for the steward, and its user's.
pub(crate) type Pair = (OwnedFd, OwnedFd);

/// The part of a process that lends and borrows.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    pub(crate) fork: Lock<Option<Fork>>,
    /// Taken while a socket of another process becomes one of this process, and by a fork before it
    /// prepares what the child may use, which would be something else then.
    pub(crate) bringing: Lock<()>,
    /// Descriptors of the stewards, and numbers of connections that only they use. Children close
    /// them.
    pub(crate) numbers: Lock<Vec<i32>>,
    /// The control sockets to the stewards of others.
    pub(crate) controls: Lock<Vec<Arc<Control>>>,
    /// Files for the program that this one is about to become.
    pub(crate) handed: Lock<Vec<PrivateFd>>,
    pub(crate) post: post::Post,
    /// Connections of others stay there: this process may not drive an engine.
    pub(crate) keeps_out: AtomicBool,
    /// Set if this process has left its connections to a helper and made no others.
    pub(crate) is_confined: AtomicBool,
    pub(crate) abstract_names: abstract_name::AbstractNames,
    /// Connections that have come in messages.
    pub(crate) arrivals: AtomicU32,
    /// Connections of others that are used here.
    pub(crate) in_use: InUse,
    pub(crate) callers: Callers,
}

impl Lending {
    /// Returns the library's own descriptors in the order of their numbers.
    pub(crate) fn privates(&self) -> Vec<i32> {
        let mut all = slipstack_mem::privates();
        all.extend(self.numbers.lock().iter().filter(|number| **number >= 0));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether a number is one of those.
    pub(crate) fn is_private(&self, number: i32) -> bool {
        slipstack_mem::is_private(number) || self.is_stewards(number)
    }

    pub(crate) fn is_stewards(&self, number: i32) -> bool {
        self.numbers.lock().contains(&number)
    }

    pub(crate) fn note(&self, number: i32) {
        self.numbers.lock().push(number);
    }

    pub(crate) fn forget(&self, number: i32) {
        self.numbers.lock().retain(|other| *other != number);
        self.post.forget_source(number);
    }

    /// Puts `new`, which has an end of a pair under its numbers, into the sets that had `old`.
    pub(crate) fn watch_instead(
        &self,
        sets: Vec<(Arc<Set>, u64)>,
        old: &Description,
        new: &Arc<Description>,
    ) {
        for (set, item) in sets {
            let _ = self.part_from_parent(&set);
            drop(set.retarget(item, Target::Socket(Arc::clone(new))));
            old.unwatch(&|watch| watch.is_item(&set, item));
            new.watch(Set::watch_of(&set, item));
            add_kernel_part(&set, item);
        }
    }

    /// Ends the ways to the stewards of others, and to the former one of this process: they have
    /// nothing more to do for it.
    pub(crate) fn leave_stewards(&self) {
        for control in self.controls.lock().iter() {
            let _ = rustix::net::shutdown(control.end(), Shutdown::Both);
        }
    }

    /// Makes a pair whose ends a forked child closes, while no thread forks: a child would keep
    /// them. `make` waits for nothing.
    pub(crate) fn listed_pair(&self, make: impl FnOnce() -> io::Result<Pair>) -> io::Result<Pair> {
        let _unlisted = self.post.unlisted.lock();
        let (ours, theirs) = make()?;
        self.note(ours.as_raw_fd());
        self.note(theirs.as_raw_fd());
        Ok((ours, theirs))
    }

    /// Receives something with an end of a pair, and lists the end while no thread forks.
    /// `receive` waits for nothing.
    pub(crate) fn receive_listed<T>(
        &self,
        receive: impl FnOnce() -> io::Result<(T, Option<OwnedFd>)>,
    ) -> io::Result<(T, Option<OwnedFd>)> {
        let _unlisted = self.post.unlisted.lock();
        let (received, end) = receive()?;
        let end = end.map(|end| raised(end).unlisted());
        if let Some(end) = &end {
            self.note(end.as_raw_fd());
        }
        Ok((received, end))
    }

    /// Closes a descriptor of the list while no thread forks: a child would keep it.
    pub(crate) fn close_listed(&self, end: OwnedFd) {
        let _unlisted = self.post.unlisted.lock();
        self.forget(end.as_raw_fd());
        drop(end);
    }

    pub(crate) fn hold(&self) {
        self.fork.hold();
        self.numbers.hold();
        self.handed.hold();
        self.controls.hold();
        self.in_use.hold();
        self.callers.hold();
        self.post.hold();
    }

    pub(crate) fn release(&self) {
        self.post.release();
        self.callers.release();
        self.in_use.release();
        self.controls.release();
        self.handed.release();
        self.numbers.release();
        self.fork.release();
    }

    /// Nobody needs the way to the steward any more of a connection that has come in a message.
    pub(crate) fn drop_way(&self, it: &Borrowed) {
        if let Some(control) = it.take_own_control() {
            let mut all = self.controls.lock();
            all.retain(|other| !Arc::ptr_eq(other, &control));
        }
    }

    pub(crate) fn close_common(&self, common: Option<Descriptor>) {
        if let Some(common) = common {
            common.close();
        }
    }

    /// Returns whether this process has left its connections to a helper and confined itself: its
    /// events arrive on kernel descriptors, and a wait of ours would make more system calls than a
    /// wait.
    pub(crate) fn waits_in_kernel(&self) -> bool {
        self.is_confined.load(Ordering::Relaxed)
    }

    pub(crate) fn drop_kernel_part(&self, it: &Borrowed) {
        if let Some(kept) = it.kernel_part.lock().take() {
            kept.close();
        }
    }

    /// Keeps the kernel's part, which the end of a pair replaces.
    pub(crate) fn keep_kernel_part(&self, socket: &Description, it: &Borrowed) {
        let number = socket.kernel_number();
        let copy = number.and_then(|number| raised_copy(number.as_fd()).ok());
        if let Some(copy) = copy {
            *it.kernel_part.lock() = Some(Descriptor::keep(copy));
        }
    }

    /// Waits until owners that are stopped have taken what this process has said, before it ends or
    /// becomes another program.
    pub(crate) fn send_kept(&self) {
        // A signal's handler may have interrupted the thread that holds the lock.
        let controls = self.controls.try_lock().map(|it| it.clone());
        for control in controls.into_iter().flatten() {
            control.send_kept();
        }
    }

    /// Leaves bytes to the program that this one is about to become. Returns the number of the file
    /// with them.
    pub(crate) fn hand(&self, bytes: &[u8]) -> Option<i32> {
        let file = raised(text_file(bytes).ok()?);
        fcntl_setfd(&file, FdFlags::empty()).ok()?;
        let number = file.as_raw_fd();
        self.handed.lock().push(file);
        Some(number)
    }

    /// Marks the control sockets close-on-exec again after a failed `exec`.
    pub(crate) fn keep_controls(&self) {
        self.handed.lock().clear();
        for control in self.controls.lock().iter() {
            let _ = fcntl_setfd(control.end(), FdFlags::CLOEXEC);
        }
    }

    /// The control socket that has come under the number of a [`control_name`]; it moves out of the
    /// program's way.
    pub(crate) fn way(
        &self,
        name: &str,
        steward_sockets: &mut StewardSockets,
    ) -> Option<Arc<Control>> {
        let (name, heirs) = name.split_once('.')?;
        let heirs = u64::from_str_radix(heirs, 16).ok()?;
        let is_branch = name.ends_with(BRANCH);
        let number: i32 = name.trim_end_matches(BRANCH).parse().ok()?;
        let mut ways = steward_sockets.ways.iter();
        if let Some((_, control)) = ways.find(|(known, _)| *known == number) {
            return Some(Arc::clone(control));
        }
        let came = Descriptor::new(number)?;
        let kind = sockopt::socket_type(came.as_fd()).ok()?;
        if kind != SocketType::SEQPACKET {
            return None;
        }
        let end = came.as_fd().try_clone_to_owned().ok()?;
        came.close();
        let control = match is_branch {
            true => Control::branch(end),
            false => Control::new(end),
        };
        let control = Arc::new(control.of_heirs(Some(heirs)));
        self.controls.lock().push(Arc::clone(&control));
        steward_sockets.ways.push((number, Arc::clone(&control)));
        Some(control)
    }

    /// Gives a set that this process has from its parent a kernel's set of its own.
    pub(crate) fn part_from_parent(&self, set: &Set) -> Result<(), Errno> {
        epoll::part_from_parent(set)
    }

    /// As [`Lending::part_from_parent`], and shares nothing of it any more.
    pub(crate) fn end_sharing(&self, set: &Set) -> Result<(), Errno> {
        let common = set.common();
        epoll::end_sharing(set)?;
        self.close_common(common);
        Ok(())
    }

    /// Puts the kernel's part back under the numbers.
    pub(crate) fn put_kernel_part(&self, socket: &Arc<Description>, it: &Borrowed) {
        let Some(kept) = *it.kernel_part.lock() else {
            return;
        };
        let Ok(copy) = fcntl_dupfd_cloexec(kept.as_fd(), 0) else {
            return;
        };
        let sets = sets_of(socket);
        for (set, item) in &sets {
            remove_kernel_part(set, *item);
        }
        let numbers = socket.cold.lock().numbers.clone();
        for number in numbers.into_iter().filter_map(Descriptor::new) {
            let _ = replace(number, &copy);
            let _ = set_nonblocking(number, true);
        }
        socket.has_kernel.store(true, Ordering::Release);
        for (set, item) in &sets {
            add_kernel_part(set, *item);
        }
        self.drop_kernel_part(it);
    }
}

impl Ends for Lending {
    fn receive(&self, from: &OwnedFd, room: &mut [IoSliceMut<'_>]) -> Received {
        let received = self.receive_listed(|| {
            let (len, [end, other]) = receive_with_ends(from, room)?;
            Ok(((len, other), end))
        });
        received.map(|((len, other), end)| (len, [end, other]))
    }

    fn close(&self, end: OwnedFd) {
        self.close_listed(end);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;
    use crate::socket::borrowed::child_message::control_pair;

    #[test]
    fn a_new_program_knows_who_has_made_control_sockets_and_the_owners_secret() {
        for is_branch in [false, true] {
            let (_ours, theirs) = control_pair().unwrap();
            let name = control_name(theirs.into_raw_fd(), is_branch, u64::MAX);
            let (lending, mut known) = (Lending::default(), StewardSockets::default());
            let control = lending.way(&name, &mut known).unwrap();
            assert_eq!(control.is_branch(), is_branch);
            assert_eq!(control.heirs(), Some(u64::MAX));
            let again = lending.way(&name, &mut known).unwrap();
            assert!(Arc::ptr_eq(&control, &again));
        }
    }
}
