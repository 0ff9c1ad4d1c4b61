//! Signals that arrive inside a call, with real handlers.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use slipstack_posix::{Errno, Kernel};

use crate::kernel::Libc;
use crate::raw::{self, bit};
use crate::signals::{Action, mask_of, start, sys};
use crate::symbols::exported;
use crate::thread::{self, InCall};

static RAN: AtomicU32 = AtomicU32::new(0);
static VALUE: AtomicI32 = AtomicI32::new(0);

unsafe extern "C" fn on_signal(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    RAN.fetch_add(1, SeqCst);
    // SAFETY: the kernel's siginfo.
    let info = unsafe { &*info };
    // SAFETY: the signal was sent by a process.
    VALUE.store(unsafe { info.si_pid() }, SeqCst);
}

fn handle(signal: c_int, flags: c_int) {
    let action = sys::to_c(Action {
        handler: on_signal as *const () as usize,
        flags: flags | libc::SA_SIGINFO,
        mask: 0,
    });
    // SAFETY: a whole structure with a handler of the right type.
    let result = unsafe { exported::sigaction(signal, &raw const action, core::ptr::null_mut()) };
    assert_eq!(result, 0);
}

fn current_mask() -> u64 {
    let mask = raw::swap_mask(raw::BLOCK_ALL);
    raw::swap_mask(mask);
    mask
}

/// As in valgrind, which does not take the mask that a handler leaves in its frame.
fn what_cannot_be_blocked_comes_once(before: u64) {
    let ran = RAN.load(SeqCst);
    let guard = InCall::enter();
    raw::kill_self(libc::SIGUSR1);
    raw::swap_mask(before);
    assert_eq!(current_mask(), before, "it is not queued a second time");
    assert_eq!(RAN.load(SeqCst), ran);
    drop(guard);
    assert_eq!((RAN.load(SeqCst), current_mask()), (ran + 1, before));
}

fn doorbell() -> (OwnedFd, libc::pollfd) {
    let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let polled = libc::pollfd {
        fd: bell.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    (bell, polled)
}

/// A sleep does not outlast signals that were deferred before it. Four handlers have run.
fn a_sleep_with_a_doorbell_leaves_the_mask_alone(before: u64) {
    let (_bell, polled) = doorbell();
    let guard = InCall::enter();
    assert_eq!(
        Libc.ppoll(&mut [polled], Some(Duration::from_millis(1)), None),
        Ok(0)
    );
    assert_eq!(current_mask(), before);
    raw::kill_self(libc::SIGUSR1);
    let slept = Libc.ppoll(&mut [polled], Some(Duration::from_secs(20)), None);
    assert_eq!((slept, RAN.load(SeqCst)), (Err(Errno::EINTR), 4));
    drop(guard);
    assert_eq!((RAN.load(SeqCst), current_mask()), (5, before));
}

/// The moment between the last look and the sleep. Five handlers have run.
fn a_handler_that_comes_just_before_a_sleep_rings(before: u64) {
    let (bell, _) = doorbell();
    let guard = InCall::enter();
    thread::current().fall_asleep(bell.as_raw_fd());
    raw::kill_self(libc::SIGUSR1);
    thread::current().wake_up();
    let mut count = [0; 8];
    assert_eq!(rustix::io::read(&bell, &mut count), Ok(8));
    drop(guard);
    assert_eq!((RAN.load(SeqCst), current_mask()), (6, before));
}

/// Signals of another thread, at any moment of a sleep. Six handlers have run.
fn no_sleep_misses_a_signal(before: u64) {
    const ROUNDS: u32 = 3_000;
    let (bell, polled) = doorbell();
    // SAFETY: takes nothing.
    let sleeper = unsafe { libc::pthread_self() };
    let asked = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                while asked.load(SeqCst) != round {
                    std::hint::spin_loop();
                }
                (0..round % 200).for_each(|_| std::hint::spin_loop());
                // SAFETY: the thread is alive, it waits for this one.
                unsafe { libc::pthread_kill(sleeper, libc::SIGUSR1) };
            }
        });
        for round in 1..=ROUNDS {
            let ran = RAN.load(SeqCst);
            let guard = InCall::enter();
            let counted = Libc.interruptions();
            asked.store(round, SeqCst);
            while Libc.interruptions() == counted {
                let slept = Libc.ppoll(&mut [polled], Some(Duration::from_secs(20)), None);
                assert_ne!(slept, Ok(0), "it was missed");
            }
            drop(guard);
            assert_eq!((RAN.load(SeqCst), current_mask()), (ran + 1, before));
            let _ = rustix::io::read(&bell, &mut [0; 8]);
        }
    });
    RAN.fetch_sub(ROUNDS, SeqCst);
}

/// SA_RESETHAND and SA_NODEFER, which the kernel does not get, work all the same. Seven handlers
/// have run.
fn the_librarys_flags_are_kept() {
    handle(libc::SIGUSR1, libc::SA_RESETHAND | libc::SA_NODEFER);
    raw::kill_self(libc::SIGUSR1);
    assert_eq!(RAN.load(SeqCst), 8);
    assert_eq!(sys::query(libc::SIGUSR1).unwrap().handler, libc::SIG_DFL);
}

/// One test, as a signal's action belongs to the whole process.
#[test]
fn handlers_wait_for_the_end_of_a_call_and_for_its_sleeps() {
    start();
    handle(libc::SIGUSR1, 0);
    let before = current_mask();

    // Deferred until the guard is gone, with the kernel's whole siginfo.
    let guard = InCall::enter();
    raw::kill_self(libc::SIGUSR1);
    assert_eq!(RAN.load(SeqCst), 0);
    assert_ne!(
        current_mask() & bit(libc::SIGTERM),
        0,
        "everything waits meanwhile"
    );
    drop(guard);
    assert_eq!(RAN.load(SeqCst), 1);
    assert_eq!(VALUE.load(SeqCst), std::process::id().cast_signed());
    assert_eq!(current_mask(), before);

    // A wait ends at once when a handler was deferred, and the handler still waits.
    let guard = InCall::enter();
    let counted = Libc.interruptions();
    raw::kill_self(libc::SIGUSR1);
    assert_ne!(Libc.interruptions(), counted);
    let slept = Libc.ppoll(&mut [], Some(Duration::from_secs(20)), None);
    assert_eq!((slept, RAN.load(SeqCst)), (Err(Errno::EINTR), 1));
    drop(guard);
    assert_eq!((RAN.load(SeqCst), current_mask()), (2, before));

    // A call's mask that admits a blocked signal holds for that call only.
    let own = before | bit(libc::SIGUSR1);
    raw::swap_mask(own);
    thread::current().set_call_mask(before);
    let guard = InCall::enter();
    raw::kill_self(libc::SIGUSR1);
    assert_eq!(Libc.ppoll(&mut [], Some(Duration::ZERO), None), Ok(0));
    let slept = Libc.ppoll(
        &mut [],
        Some(Duration::from_secs(20)),
        Some(&sys::set_of(before)),
    );
    assert_eq!((slept, RAN.load(SeqCst)), (Err(Errno::EINTR), 2));
    drop(guard);
    assert_eq!((RAN.load(SeqCst), current_mask()), (3, own));
    raw::swap_mask(before);

    // A mask that blocks a signal that the thread's own admits keeps the wait from ending.
    thread::current().set_call_mask(own);
    let guard = InCall::enter();
    let counted = Libc.interruptions();
    raw::kill_self(libc::SIGUSR1);
    assert_eq!(
        Libc.ppoll(&mut [], Some(Duration::ZERO), Some(&sys::set_of(own))),
        Ok(0)
    );
    assert_eq!((Libc.interruptions(), RAN.load(SeqCst)), (counted, 3));
    drop(guard);
    assert_eq!((RAN.load(SeqCst), current_mask()), (4, before));
    assert_eq!(mask_of(&sys::set_of(own)), own);

    a_sleep_with_a_doorbell_leaves_the_mask_alone(before);
    a_handler_that_comes_just_before_a_sleep_rings(before);
    no_sleep_misses_a_signal(before);
    what_cannot_be_blocked_comes_once(before);

    the_librarys_flags_are_kept();
}
