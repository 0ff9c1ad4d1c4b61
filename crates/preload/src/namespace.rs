//! The network namespaces of the program's threads. A socket belongs to the one in which its thread
//! was when it made it, for good; the stack is in the namespace in which `slipstack run` started
//! the program, and sockets of any other are the kernel's.
//!
//! The kernel keeps the namespace of each thread, and passes it on to the threads and children that
//! it makes. That is not repeated here: a thread that libc starts itself, a raw `clone` or a child
//! that shares our memory would escape us. Instead a process knows whether all of its threads are
//! in one place, which costs a load for each new socket. Only after `setns`, `unshare` or `clone`
//! with CLONE_NEWNET are they apart, and then the kernel is asked, by three system calls, each time
//! that it matters. A forked child has one thread, and asks once, as does a program that was
//! started elsewhere.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use core::sync::atomic::{AtomicU8, AtomicU64};
use std::ffi::CString;

use crate::thread::InCall;

/// The number of the namespace in which `slipstack run` started the first program, for all that
/// follow it.
const VARIABLE: &str = "SLIPSTACK_NETNS";

/// The number of the stack's namespace; 0: this program is none of ours.
static HOME: AtomicU64 = AtomicU64::new(0);
/// The place of the program's threads, as far as it is known.
static PLACE: AtomicU8 = AtomicU8::new(AT_HOME);

const AT_HOME: u8 = 0;
/// All in one place, which has not been looked at.
const UNSEEN: u8 = 1;
const ELSEWHERE: u8 = 2;
/// Each where it has gone.
const APART: u8 = 3;

/// Learns the stack's namespace from the program's variables. A program that was started without
/// `slipstack run`, by the loader's variables alone, is there.
pub fn begin(variables: &mut Vec<CString>) {
    let number = |variable: &CString| {
        let (name, value) = variable.to_str().ok()?.split_once('=')?;
        (name == VARIABLE).then(|| value.parse().ok())?
    };
    if let Some(home) = variables.iter().find_map(number) {
        HOME.store(home, Relaxed);
        PLACE.store(UNSEEN, Relaxed);
    } else if let Some(home) = of_this_thread() {
        HOME.store(home, Relaxed);
        variables.extend(CString::new(format!("{VARIABLE}={home}")));
    }
}

/// Whether the calling thread is in another namespace than the stack.
#[inline]
pub fn is_elsewhere() -> bool {
    match PLACE.load(Relaxed) {
        AT_HOME => false,
        ELSEWHERE => true,
        place => look(place),
    }
}

#[cold]
fn look(place: u8) -> bool {
    // A program that may have no further descriptor gets no socket either.
    let Some(here) = of_this_thread() else {
        return false;
    };
    let is_elsewhere = here != HOME.load(Relaxed);
    if place == UNSEEN {
        let seen = if is_elsewhere { ELSEWHERE } else { AT_HOME };
        // A thread that leaves has said so before.
        let _ = PLACE.compare_exchange(UNSEEN, seen, AcqRel, Relaxed);
    }
    is_elsewhere
}

/// Whether threads of this process may be in several namespaces.
#[inline]
pub fn are_apart() -> bool {
    PLACE.load(Relaxed) == APART
}

/// Notes that a thread, or a child that shares our memory, is about to leave. Returns true if all
/// have been together until now.
pub fn part() -> bool {
    HOME.load(Relaxed) != 0 && PLACE.swap(APART, AcqRel) != APART
}

/// The child of a fork has one thread.
pub fn after_fork_child() {
    let _ = PLACE.compare_exchange(APART, UNSEEN, AcqRel, Relaxed);
}

fn of_this_thread() -> Option<u64> {
    let _in_call = InCall::enter();
    slipstack_attach::network_namespace()
}
