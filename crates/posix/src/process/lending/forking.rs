//! The sockets that a child may use: prepared before the fork, completed after it.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstack_mem::Descriptor;

use crate::idhash::BuildIdHasher;
use crate::lending::Lending;
use crate::lending::child::lend_to_child;
use crate::lending::fork::{Fork, Inheritance};
use crate::lending::lender::Lender;
use crate::lending::post::Charge;
use crate::process::Process;
use crate::process::lending::owner::names_of;
use crate::process::place::name_part;
use crate::process::table::Entry;
use crate::socket::borrowed::child_message::control_pair;
use crate::socket::borrowed::control::Control;
use crate::socket::description::{Decided, Description};

/// Sockets that a child which has been forked may use; nothing is lent if it is dropped.
#[derive(Debug)]
pub struct ForkLending {
    /// The steward's end of the child's control socket.
    control: Option<OwnedFd>,
    shared: Vec<Arc<Description>>,
    closed: Vec<Arc<Description>>,
}

impl Lending {
    /// Takes what was prepared for this thread's child, before another thread forks: its child
    /// would keep both ends of the control socket.
    pub(crate) fn take_fork(&self) -> Option<ForkLending> {
        let fork = self.fork.lock().take()?;
        let control = fork.control.map(|(control, _)| control);
        if let Some(control) = &control {
            self.note(control.as_raw_fd());
        }
        Some(ForkLending {
            control,
            shared: fork.shared,
            closed: fork.closed,
        })
    }
}

impl Process {
    /// Makes control sockets before a fork if there is anything among `entries` that the child
    /// could use.
    pub(crate) fn prepare_lending(&self, entries: &[Entry]) {
        let sockets = entries.iter().filter_map(|entry| match entry {
            Entry::Socket(socket) => Some(socket),
            Entry::Set(_) | Entry::Routes(_) => None,
        });
        let fork = self.prepare_child(sockets);
        *self.lending.fork.lock() = fork;
    }

    /// Counts `sockets` as lent to a child that is about to be made.
    pub(super) fn prepare_child<'a>(
        &self,
        sockets: impl Iterator<Item = &'a Arc<Description>>,
    ) -> Option<Fork> {
        let mut fork = Fork::default();
        let is_programs = |socket: &Description| {
            let cold = socket.cold.lock();
            // The steward lists its numbers before they are here, and until they are not.
            let mut numbers = cold.numbers.iter();
            numbers.any(|number| !self.lending.is_stewards(*number))
        };
        for socket in sockets {
            match socket.decided() {
                Some(Decided::Stream(stream)) if !stream.is_failed() && is_programs(socket) => {
                    fork.shared.push(Arc::clone(socket));
                }
                Some(Decided::Dgram(dgram)) if dgram.is_served() && is_programs(socket) => {
                    // The child may come to receive by a part of its own.
                    if socket.is_first_sharing() && dgram.remote.lock().is_none() {
                        name_part(&*self.kernel, socket, dgram);
                    }
                    fork.shared.push(Arc::clone(socket));
                }
                Some(Decided::Foreign(borrowed)) => {
                    borrowed.resume();
                    // The pair gets bytes of the child's too, which are not counted here.
                    borrowed.stop_counting(&*self.kernel, socket);
                    if let Some(control) = borrowed.control() {
                        fork.branch_off(&control);
                    }
                }
                _ => {}
            }
        }
        fork.shared.sort_by_key(|socket| socket.id);
        fork.shared.dedup_by_key(|socket| socket.id);
        if !fork.shared.is_empty() {
            fork.control = control_pair().ok();
        }
        if fork.control.is_none() {
            fork.shared.clear();
        }
        if fork.control.is_none() && fork.branches.is_empty() {
            return None;
        }
        fork.names.reserve(fork.shared.len());
        for socket in &fork.shared {
            fork.names.push(names_of(&self.ids, socket));
            // Before another thread can close it in the parent.
            lend_to_child(socket);
        }
        Some(fork)
    }

    /// Leaves out sockets that other threads have closed since the child was prepared: it has no
    /// number of theirs, and would never give them back. Called when no number can be closed any
    /// more before the fork.
    pub(crate) fn leave_out_closed(&self) {
        let mut fork = self.lending.fork.lock();
        let Some(fork) = fork.as_mut().filter(|fork| !fork.shared.is_empty()) else {
            return;
        };
        let mut open = HashSet::<u64, BuildIdHasher>::default();
        self.table.each_socket(|number, socket| {
            if !self.lending.is_stewards(number) {
                open.insert(socket.id);
            }
        });
        let closed = fork.shared.extract_if(.., |it| !open.contains(&it.id));
        fork.closed = closed.collect();
        fork.names.retain(|names| open.contains(&names.id));
    }

    /// Lends, in the parent after the fork, the sockets that the child may use.
    pub fn lend(&'static self, lending: ForkLending) {
        if let Some(control) = lending.control {
            self.charge(Charge::child(control, lending.shared));
        }
        for socket in lending.closed {
            self.take_back_unused(&socket);
        }
    }

    /// Sets up borrowing in the child. The stewards are the parent's.
    pub(crate) fn begin_borrowing(&self) -> Inheritance {
        self.lending.is_confined.store(false, Ordering::Relaxed);
        self.lending.post.forget();
        self.lending.in_use.forget();
        self.lending.callers.forget();
        let numbers = std::mem::take(&mut *self.lending.numbers.lock());
        for number in numbers {
            std::mem::forget(self.table.take(number));
            close_number(number);
        }
        let fork = self.lending.fork.lock().take().unwrap_or_default();
        // The descriptions are the parent's: not even their destructors run.
        std::mem::forget((fork.shared, fork.closed));
        let mut inheritance = Inheritance {
            names: fork.names,
            ..Inheritance::default()
        };
        if let Some((parents, childs)) = fork.control {
            drop(parents);
            inheritance.control = Some(Arc::new(Control::new(childs)));
        }
        for branch in fork.branches {
            let control = Control::branch(branch.childs).of_heirs(branch.of.heirs());
            let control = Arc::new(control);
            inheritance.branches.push((branch.of.number(), control));
            std::mem::forget(branch.of);
        }
        let mut controls = self.lending.controls.lock();
        // The parent's own; other threads of it hold on to them as well.
        for control in std::mem::take(&mut *controls) {
            close_number(control.number());
            std::mem::forget(control);
        }
        controls.extend(inheritance.control.clone());
        let branches = inheritance.branches.iter();
        controls.extend(branches.map(|(_, control)| Arc::clone(control)));
        drop(controls);
        inheritance
    }
}

fn close_number(number: i32) {
    if let Some(number) = Descriptor::new(number) {
        number.close();
    }
}
