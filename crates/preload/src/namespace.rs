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

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::ffi::CString;

use slipstack_attach::NetworkNamespace;

use crate::thread::InCall;

/// The namespace in which `slipstack run` started the first program, for all that
/// follow it.
const VARIABLE: &str = "SLIPSTACK_NETNS";

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
    let namespace = |variable: &CString| {
        let (name, value) = variable.to_str().ok()?.split_once('=')?;
        (name == VARIABLE).then(|| NetworkNamespace::parse(value))?
    };
    if let Some(home) = variables.iter().find_map(namespace) {
        home.make_home();
        PLACE.store(UNSEEN, Relaxed);
        return;
    }
    let _in_call = InCall::enter();
    if let Some(home) = NetworkNamespace::of_this_thread() {
        home.make_home();
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
    let is_at_home = {
        let _in_call = InCall::enter();
        slipstack_attach::is_at_home()
    };
    // A program in which that cannot be told may have no further descriptor, and gets no socket.
    let Some(is_at_home) = is_at_home else {
        return false;
    };
    let is_elsewhere = !is_at_home;
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
    slipstack_attach::has_home() && PLACE.swap(APART, AcqRel) != APART
}

/// The child of a fork has one thread.
pub fn after_fork_child() {
    let _ = PLACE.compare_exchange(APART, UNSEEN, AcqRel, Relaxed);
}
