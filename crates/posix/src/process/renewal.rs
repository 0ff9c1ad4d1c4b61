//! Sockets and sets that a forked child has from its parent, which become its own when it first
//! uses them.
//!
//! Most children use few of their parent's sockets: they answer on one connection, or start a
//! program. So a fork makes no description for each of them. The child's table keeps the parent's
//! entries, marked as such, and a lookup puts the child's own in the place of what it finds. An
//! epoll set stays the same object: its members become the child's, and those of all other sets,
//! with the first set that is looked up.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slipstack_mem::Lock;

use crate::epoll::{Set, Target};
use crate::lending::Inheritance;
use crate::process::ids::Ids;
use crate::process::table::{Entry, Table};
use crate::ready::{Awaited, Watcher};
use crate::socket::borrowed::Borrowed;
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
                // The parent's: not even its destructor runs.
                mem::forget(old);
            }
            Some(Entry::Set(_)) => self.renew_sets(table),
            Some(Entry::Routes(_)) | None => {}
        }
    }

    /// Puts the child's description under all numbers of `old`, and into the sets that it is in.
    fn renew_socket(&self, table: &Table, old: &Arc<Description>, found: Option<i32>) {
        old.cold.release();
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

    /// Over a fork.
    pub(crate) fn hold(&self) {
        self.parentage.hold();
    }

    pub(crate) fn release(&self) {
        self.parentage.release();
    }
}

/// Returns the child's description for one of the parent's.
fn in_child(parentage: &Parentage, old: &Arc<Description>) -> Description {
    let lent = &parentage.lent;
    let new = Description::like(old, parentage.ids.next());
    let foreign = || {
        let (names, control) = lent.of_parent(old.id);
        Decided::Foreign(Borrowed::new(old.id, names, control, None))
    };
    let readable = old
        .cold
        .try_lock()
        .map(|cold| (cold.options.clone(), cold.bound, cold.memberships.clone()));
    let Some((options, bound, memberships)) = readable else {
        // Another thread of the parent was inside: its state cannot be read any more.
        let _ = new.decided.set(foreign());
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
                    Decided::Foreign(it.or_own(fresh))
                }
                _ => {
                    fresh.give_left(handed.map(|left| *left));
                    Decided::Dgram(fresh)
                }
            }
        }
        Some(Decided::Foreign(it)) => {
            Decided::Foreign(it.for_child(lent.instead_of(it.control().as_ref())))
        }
        Some(Decided::Stream(_) | Decided::Dgram(_)) => foreign(),
    };
    let _ = new.decided.set(decided);
    new
}
