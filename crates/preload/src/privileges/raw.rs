//! System calls that every thread of ours makes: it is sent glibc's signal for `setuid`, which no
//! thread blocks, with a value that is not glibc's.

use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize};
use std::time::Duration;

use slipstack_posix::{await_begun_threads, own_threads};

use crate::raw::{SIGSETXID, queue_to_thread, syscall6};
use crate::signals::abi::KernelAction;
use crate::thread::InCall;

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The call to be made. Only the first thread of the process requests one, and it waits.
static NUMBER: AtomicI64 = AtomicI64::new(0);
static ARGS: [AtomicUsize; 6] = [const { AtomicUsize::new(0) }; 6];
/// The requested thread has not made it yet.
static IS_ASKED: AtomicBool = AtomicBool::new(false);
/// glibc's handler.
static BEFORE: AtomicUsize = AtomicUsize::new(0);

/// Interval of looks at a thread that does not answer, and their number in all: it may
/// have ended.
const LOOK: Duration = Duration::from_micros(50);
const LOOKS: u32 = 20_000;

/// Most threads of ours that are asked; a process has three or four.
const THREADS_MAX: usize = 64;

/// Has every thread of ours make the call.
///
/// # Safety
/// As the call, for each of them, until this returns.
pub unsafe fn have_done(number: c_long, args: [usize; 6]) {
    let _in_call = InCall::enter();
    // One that has been started and is not listed yet has the privileges of before.
    await_begun_threads();
    if own_threads().next().is_none() || !install() {
        return;
    }
    NUMBER.store(number, Relaxed);
    for (place, arg) in ARGS.iter().zip(args) {
        place.store(arg, Relaxed);
    }
    let mut asked = [0; THREADS_MAX];
    for count in 0..THREADS_MAX {
        let Some(thread) = own_threads().find(|it| !asked[..count].contains(it)) else {
            break;
        };
        ask(thread);
        asked[count] = thread;
        // Before it was asked it may have started another one.
        await_begun_threads();
    }
}

fn ask(thread: u32) {
    IS_ASKED.store(true, Release);
    let mut is_waited_for = queue_to_thread(thread, SIGSETXID, mark());
    for _ in 0..LOOKS {
        if !is_waited_for || !IS_ASKED.load(Acquire) {
            break;
        }
        std::thread::sleep(LOOK);
        is_waited_for = own_threads().any(|it| it == thread);
    }
    IS_ASKED.store(false, Release);
}

/// Returns the mark that the signal carries.
fn mark() -> usize {
    (&raw const NUMBER).addr()
}

/// Puts [`on_signal`] before glibc's handler, which is there from the first thread on.
fn install() -> bool {
    let mut action = KernelAction::DEFAULT;
    let size = size_of::<u64>();
    let args = |new: usize, old: usize| [SIGSETXID as usize, new, old, size, 0, 0];
    let old = &raw mut action as usize;
    // SAFETY: a live structure of the kernel's; nothing is changed.
    let is_read = unsafe { syscall6(libc::SYS_rt_sigaction, args(0, old)) } == 0;
    let ours = on_signal as Handler as usize;
    if !is_read || action.handler == ours {
        return is_read;
    }
    if action.handler == libc::SIG_DFL || action.handler == libc::SIG_IGN {
        return false;
    }
    BEFORE.store(action.handler, Release);
    action.handler = ours;
    let new = &raw const action as usize;
    // SAFETY: glibc's structure with a handler of the same type, which calls glibc's.
    unsafe { syscall6(libc::SYS_rt_sigaction, args(new, 0)) == 0 }
}

unsafe extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's, of a handler with SA_SIGINFO.
    let it = unsafe { &*info };
    // SAFETY: a queued signal carries a value.
    if it.si_code == libc::SI_QUEUE && unsafe { it.si_value() }.sival_ptr.addr() == mark() {
        return make_call();
    }
    let before = BEFORE.load(Acquire);
    // SAFETY: glibc's handler, of this type; it has SA_SIGINFO.
    let before = unsafe { core::mem::transmute::<usize, Handler>(before) };
    // SAFETY: the kernel's arguments.
    unsafe { before(signal, info, context) };
}

fn make_call() {
    if !IS_ASKED.load(Acquire) {
        return;
    }
    let args = core::array::from_fn(|at| ARGS[at].load(Relaxed));
    // SAFETY: the requesting thread vouches for the call.
    unsafe { syscall6(NUMBER.load(Relaxed), args) };
    IS_ASKED.store(false, Release);
}
