//! Sockets and sets that a forked child has from its parent, which become its own when it first
//! uses them.
//!
//! Most children use few of their parent's sockets: they answer on one connection, or start a
//! program. So a fork makes no description for each of them. The child's table keeps the parent's
//! entries, marked as such, and a lookup puts the child's own in the place of what it finds. An
//! epoll set stays the same object: its members become the child's, and those of all other sets,
//! with the first set that is looked up.

use std::collections::HashSet;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slipstack_mem::{Descriptor, Lock};

use crate::epoll::{Set, Target};
use crate::idhash::BuildIdHasher;
use crate::lending::Inheritance;
use crate::process::ids::Ids;
use crate::process::table::{Entry, Table};
use crate::ready::{Awaited, Watcher};
use crate::socket::borrowed::Borrowed;
use crate::socket::borrowed::control::Control;
use crate::socket::description::{Decided, Description};
use crate::socket::{Dgram, Listener};

/// A child's knowledge of its parent, kept until all entries are its own.
#[derive(Debug)]
pub(crate) struct Parentage {
    ids: Arc<Ids>,
    lent: Inheritance,
    /// The sets in the table.
    sets: Vec<Arc<Set>>,
    /// Descriptions with smaller numbers are the parent's.
    first_own: u64,
    /// The parent's number for inodes.
    inode_pid: u32,
    /// The parent, as `getppid` names it.
    pid: u32,
}

impl Parentage {
    /// Called in the child, right after the fork.
    pub(crate) fn new(ids: &Arc<Ids>, lent: Inheritance, sets: Vec<Arc<Set>>) -> Parentage {
        Parentage {
            ids: Arc::clone(ids),
            lent,
            sets,
            first_own: ids.next(),
            inode_pid: ids.on_fork(),
            pid: std::os::unix::process::parent_id(),
        }
    }

    /// Puts the child's own entry under `number`.
    fn renew(&self, table: &Table, number: i32) {
        match table.parents_entry(number) {
            Some(Entry::Socket(old)) => {
                self.renew_socket(table, &old, Some(number));
                // The socket is the parent's: its destructor must not run.
                mem::forget(old);
            }
            Some(Entry::Set(_)) => self.renew_sets(table),
            Some(Entry::Routes(_)) | None => {}
        }
    }

    /// Puts the child's description under all numbers of `old`, and into the sets that it is in.
    fn renew_socket(&self, table: &Table, old: &Arc<Description>, found: Option<i32>) {
        old.release();
        let known = old.cold.try_lock();
        let known = known.map(|cold| (cold.numbers.clone(), cold.watches.clone()));
        // Another thread of the parent was inside: its state cannot be read any more.
        let (mut numbers, watches) = known.unwrap_or_default();
        numbers.extend(found.filter(|found| !numbers.contains(found)));
        numbers.retain(|number| table.is_parents(*number, old));
        if numbers.is_empty() {
            return;
        }
        let new = Arc::new(in_child(self, old));
        new.set_inode(old.inode(self.inode_pid));
        new.cold.lock().numbers.clone_from(&numbers);
        for (set, item) in watches.iter().filter_map(Set::of) {
            // The steward's set is not the child's.
            if self.sets.iter().any(|it| Arc::ptr_eq(it, &set)) {
                mem::forget(set.retarget(item, Target::Socket(Arc::clone(&new))));
                new.watch(Set::watch_of(&set, item));
            }
        }
        for number in numbers {
            mem::forget(table.put_own(number, Entry::Socket(Arc::clone(&new))));
        }
    }

    /// The way to close a socket that was not used: without effect outside, by word to the steward
    /// of its connection, or not without a description of the child's.
    fn closing(&self, old: &Description) -> Closing {
        let by = |control: Option<Arc<Control>>, id| match control {
            Some(control) => Closing::GiveBack(control, id),
            None => Closing::Silent,
        };
        match old.decided() {
            None | Some(Decided::Listener(_)) => Closing::Silent,
            Some(Decided::Stream(_)) => by(self.lent.of_parent(old.id).1, old.id),
            Some(Decided::Foreign(it)) if it.has_kernel_part() => Closing::AsOwn,
            Some(Decided::Foreign(it)) if it.is_taken() => Closing::Silent,
            Some(Decided::Foreign(it)) => by(self.lent.instead_of(it.control().as_ref()), it.id()),
            Some(Decided::Dgram(_)) => Closing::AsOwn,
        }
    }

    /// Closes the last number of a set that was not used. Returns the kernel's set that is shared
    /// with other processes.
    fn close_set(&mut self, set: &Arc<Set>) -> Option<Descriptor> {
        let known = self.sets.iter().position(|it| Arc::ptr_eq(it, set));
        if let Some(at) = known {
            mem::forget(self.sets.swap_remove(at));
        }
        for (outer, item) in set.take_outer() {
            outer.forget(item);
        }
        let is_own = |member: &Target| match member {
            Target::Socket(socket) => socket.id >= self.first_own,
            Target::Set(_) => true,
        };
        for (item, member) in set.members_that(is_own) {
            member.unwatch(&|watch| watch.is_item(set, item));
        }
        set.set_common(None)
    }

    /// Makes all members of all sets the child's.
    fn renew_sets(&self, table: &Table) {
        let parents = |set: &Arc<Set>| {
            let members = set.members().into_iter();
            members.filter_map(|(item, member)| match member {
                Target::Socket(old) if old.id < self.first_own => Some((item, old)),
                Target::Socket(_) | Target::Set(_) => None,
            })
        };
        for set in &self.sets {
            for (_, old) in parents(set) {
                self.renew_socket(table, &old, None);
                mem::forget(old);
            }
            // The child has no number of these.
            for (item, old) in parents(set) {
                set.forget(item);
                mem::forget(old);
            }
        }
        table.own_sets();
    }
}

/// The way to close a socket of the parent's.
enum Closing {
    Silent,
    /// The steward's number for the connection.
    GiveBack(Arc<Control>, u64),
    AsOwn,
}

/// Numbers that were closed without their sockets having been used.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// The kernel's descriptors are open still.
    pub(crate) numbers: Vec<i32>,
    /// Kernel's sets that nobody needs any more.
    pub(crate) commons: Vec<Descriptor>,
    /// The stewards of connections, with their numbers for them.
    back: Vec<(Arc<Control>, Vec<u64>)>,
}

impl Left {
    fn give_back(&mut self, control: Arc<Control>, id: u64) {
        let mut known = self.back.iter_mut();
        match known.find(|(it, _)| Arc::ptr_eq(it, &control)) {
            Some((_, ids)) => ids.push(id),
            None => self.back.push((control, vec![id])),
        }
    }

    /// Tells the stewards.
    pub(crate) fn tell(&self) {
        for (control, ids) in &self.back {
            control.give_back(ids);
        }
    }
}

/// The way from a parent's entries to the child's.
#[derive(Debug, Default)]
pub(crate) struct Renewal {
    /// `None`: all entries are this process's own.
    parentage: Lock<Option<Parentage>>,
    is_any: AtomicBool,
}

impl Renewal {
    pub(crate) fn begin(&self, parentage: Parentage) {
        *self.parentage.lock() = Some(parentage);
        self.is_any.store(true, Ordering::Release);
    }

    /// Whether there may be entries of the parent's.
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// Puts the child's own entry under `number`.
    #[cold]
    pub(crate) fn renew(&self, table: &Table, number: i32) {
        let parentage = self.parentage.lock();
        if let Some(parentage) = &*parentage {
            parentage.renew(table, number);
        }
    }

    /// Puts the child's own entries under all numbers.
    #[cold]
    pub(crate) fn renew_all(&self, table: &Table) {
        let mut parentage = self.parentage.lock();
        if let Some(of_all) = parentage.take() {
            for number in table.parents_numbers() {
                of_all.renew(table, number);
            }
            self.is_any.store(false, Ordering::Release);
        }
    }

    /// Takes those numbers that `is_closed` names, as far as their sockets can be closed without
    /// having become the child's. A program that is to live for long closes everything that it has
    /// inherited.
    #[cold]
    pub(crate) fn leave(&self, table: &Table, is_closed: &dyn Fn(i32) -> bool) -> Left {
        let mut left = Left::default();
        let mut parentage = self.parentage.lock();
        let Some(parentage) = &mut *parentage else {
            return left;
        };
        let (mut kept, mut closed) = (HashSet::<u64, BuildIdHasher>::default(), Vec::new());
        let mut sets = Vec::new();
        table.each_parents_entry(|number, entry| match entry {
            Entry::Socket(old) if !is_closed(number) => _ = kept.insert(old.id),
            Entry::Socket(old) => closed.push((number, old.id, parentage.closing(old))),
            Entry::Set(_) if is_closed(number) => sets.push(number),
            Entry::Set(_) | Entry::Routes(_) => {}
        });
        for (number, id, closing) in closed {
            match closing {
                Closing::AsOwn => continue,
                Closing::GiveBack(control, its) if kept.insert(id) => left.give_back(control, its),
                Closing::GiveBack(..) | Closing::Silent => {}
            }
            table.forget_parents(number);
            left.numbers.push(number);
        }
        for number in sets {
            if let Some(common) = leave_set(parentage, table, number) {
                left.numbers.push(number);
                left.commons.extend(common);
            }
        }
        left
    }

    /// Takes the number of a set, as [`Renewal::leave`]; returns the kernel's set that nobody needs
    /// any more.
    #[cold]
    pub(crate) fn leave_set(&self, table: &Table, number: i32) -> Option<Option<Descriptor>> {
        leave_set(self.parentage.lock().as_mut()?, table, number)
    }

    /// Over a fork.
    pub(crate) fn hold(&self) {
        self.parentage.hold();
    }

    pub(crate) fn release(&self) {
        self.parentage.release();
    }
}

fn leave_set(parentage: &mut Parentage, table: &Table, number: i32) -> Option<Option<Descriptor>> {
    let Some(Entry::Set(set)) = table.parents_entry(number) else {
        return None;
    };
    if set.queue.get().is_some() {
        return None;
    }
    table.forget_parents(number);
    let is_last = {
        let mut inner = set.inner.lock();
        inner.numbers.retain(|it| *it != number);
        inner.numbers.is_empty()
    };
    Some(is_last.then(|| parentage.close_set(&set)).flatten())
}

/// Returns the child's description for one of the parent's.
fn in_child(parentage: &Parentage, old: &Arc<Description>) -> Description {
    let lent = &parentage.lent;
    let new = Description::like(old, parentage.ids.next());
    let foreign = || {
        let (names, control) = lent.of_parent(old.id);
        Borrowed::new(old.id, names, control, None)
    };
    let readable = old
        .cold
        .try_lock()
        .map(|cold| (cold.options.clone(), cold.bound, cold.memberships.clone()));
    let Some((options, bound, memberships)) = readable else {
        // Another thread of the parent was inside: its state cannot be read any more.
        let _ = new.decided.set(Decided::Foreign(foreign()));
        return new;
    };
    new.error_queue.set(options.error_queue_messages());
    {
        let mut cold = new.cold.lock();
        cold.options = options;
        cold.bound = bound;
        cold.memberships = memberships;
    }
    let decided = match old.decided() {
        None => return new,
        Some(Decided::Stream(stream)) if stream.is_failed() => return new,
        Some(Decided::Listener(listener)) => {
            new.set_inherited(parentage.pid);
            let backlog = listener.backlog.load(Ordering::Relaxed);
            Decided::Listener(Listener::new(listener.addr, backlog))
        }
        Some(Decided::Dgram(dgram)) if old.has_kernel() || old.is_kernel_given_up() => {
            let fresh = Dgram::new(dgram.side());
            fresh.apply(&new.cold.lock().options);
            let handed = dgram.take_handed();
            new.set_inherited(parentage.pid);
            if let Some(remote) = dgram.remote.try_lock() {
                *fresh.remote.lock() = *remote;
            }
            match lent.of_parent(old.id) {
                (Some(names), Some(control)) => {
                    let it = Borrowed::new(old.id, Some(names), Some(control), None);
                    Decided::Foreign(it.knowing_options().or_own(fresh))
                }
                _ => {
                    fresh.give_left(handed.map(|left| *left));
                    Decided::Dgram(fresh)
                }
            }
        }
        Some(Decided::Foreign(it)) => {
            let new_it = it.for_child(lent.instead_of(it.control().as_ref()));
            Decided::Foreign(match it.own_side() {
                Some(side) => {
                    new.set_inherited(parentage.pid);
                    new_it.or_own(Dgram::new(side))
                }
                None => new_it,
            })
        }
        Some(Decided::Stream(_) | Decided::Dgram(_)) => {
            Decided::Foreign(foreign().knowing_options())
        }
    };
    let _ = new.decided.set(decided);
    new
}
