//! The trampoline, and the kernel's side of `sigaction`.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

use super::io::restore_code;
use super::{AT_END, Action, Wanted, row};
use crate::cancel;
use crate::next;
use crate::raw;
use crate::thread::{self, KeptInfo, Thread};

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

pub use crate::raw::mask_of;

pub fn set_of(mask: u64) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the first eight bytes of a sigset_t are the kernel's 64 signals.
    unsafe { *set.as_mut_ptr().cast::<u64>() = mask };
    // SAFETY: all-zero bytes with one word set are a valid set.
    unsafe { set.assume_init() }
}

/// `action` as C's structure; libc adds the restorer.
pub fn to_c(action: Action) -> libc::sigaction {
    let mut c = MaybeUninit::<libc::sigaction>::zeroed();
    let at = c.as_mut_ptr();
    // SAFETY: `at` points to a whole zeroed structure.
    unsafe { (*at).sa_sigaction = action.handler };
    // SAFETY: as above.
    unsafe { (*at).sa_flags = action.flags };
    // SAFETY: as above.
    unsafe { (*at).sa_mask = set_of(action.mask) };
    // SAFETY: zeroed and filled: every field is valid.
    unsafe { c.assume_init() }
}

pub fn from_c(c: &libc::sigaction) -> Action {
    Action {
        handler: c.sa_sigaction,
        flags: c.sa_flags & !SA_RESTORER,
        mask: mask_of(&c.sa_mask),
    }
}

/// The structure names how handlers come back.
pub const SA_RESTORER: c_int = 0x0400_0000;

/// Returns the kernel's action for `signal`.
pub fn query(signal: c_int) -> Option<Action> {
    let mut old = to_c(Action::DEFAULT);
    let sigaction = next::sigaction.get();
    // SAFETY: `old` is a whole structure; nothing is changed.
    let result = unsafe { sigaction(signal, core::ptr::null(), &raw mut old) };
    (result == 0).then(|| from_c(&old))
}

/// Tells the kernel.
pub fn install(signal: c_int, wanted: Wanted) -> bool {
    let action = match wanted {
        Wanted::Plain(action) => action,
        Wanted::Trampoline { flags, mask } => Action {
            handler: trampoline as Handler as usize,
            flags: flags | libc::SA_SIGINFO,
            mask,
        },
    };
    let c = to_c(action);
    let sigaction = next::sigaction.get();
    // SAFETY: `c` is a whole structure with a handler of the right type or none.
    unsafe { sigaction(signal, &raw const c, core::ptr::null_mut()) == 0 }
}

/// Returns whether the signal was caused by the running instruction, not sent.
fn is_synchronous(signal: c_int, code: c_int) -> bool {
    code > 0 && code != libc::SI_KERNEL && raw::BLOCK_ALL & raw::bit(signal) == 0
}

/// The function that the kernel calls for every signal with a handler.
unsafe extern "C" fn trampoline(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let thread = thread::current();
    // SAFETY: the kernel gives a valid siginfo with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    if thread.is_in_call() && !is_synchronous(signal, code) {
        let context = context.cast::<libc::ucontext_t>();
        // SAFETY: the kernel gives a valid, writable context with SA_SIGINFO.
        let mask = unsafe { &mut (*context).uc_sigmask };
        // SAFETY: the kernel's siginfo is 128 bytes.
        let info = unsafe { *info.cast::<[u64; 16]>() };
        put_off(signal, &info, mask);
        return;
    }
    go_back_to_mask_beneath(thread, context.cast());
    // SAFETY: forwards the kernel's arguments.
    unsafe { deliver(signal, info, context) };
}

/// Lets the lowest of the handlers that a call's mask has admitted return to the thread's mask.
fn go_back_to_mask_beneath(thread: &Thread, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel gives a valid context with SA_SIGINFO.
    let mask = unsafe { &raw mut (*context).uc_sigmask }.cast::<u64>();
    // SAFETY: one word: behind it the kernel's frame goes on with the siginfo.
    if unsafe { *mask } == raw::BLOCK_ALL
        && let Some(beneath) = thread.take_mask_beneath()
    {
        // SAFETY: as above.
        unsafe { *mask = beneath };
    }
}

/// `signal` is blocked here, so it stays pending, and everything is blocked when the
/// handler returns.
fn put_off(signal: c_int, info: &[u64; 16], mask: &mut libc::sigset_t) {
    let thread = thread::current();
    let bit = raw::bit(signal);
    let is_blocked = mask_of(mask) & bit != 0;
    thread.defer_signal(bit, mask_of(mask));
    if let Some(doorbell) = thread.doorbell() {
        raw::ring(doorbell);
    }
    if !thread.is_blocked_by_call(bit) {
        thread.interrupt();
    }
    let kept = core::array::from_fn(|at| info[at]);
    // A sleep admits it; otherwise everything was blocked and it arrived all the same: valgrind
    // restores the mask that it knows, not the frame's. If it were queued, it would arrive again
    // and again.
    let arrives_again = !thread.note_queued(bit) && !is_blocked;
    if arrives_again && !super::is_confined() {
        return thread.keep(&kept);
    }
    *mask = set_of(raw::BLOCK_ALL);
    if super::is_confined() {
        thread.keep(&kept);
    } else {
        put_back(signal, info);
    }
}

/// Linux's first signal of which several wait.
const FIRST_QUEUED: c_int = 32;

/// Marks a place in the queue of a signal: `si_code` SI_QUEUE with a value that no program has.
fn mark(signal: c_int) -> [u64; 16] {
    let mut info = [0u64; 16];
    info[0] = signal as u64;
    info[1] = u64::from(libc::SI_QUEUE.cast_unsigned());
    info[2] = u64::from(std::process::id());
    info[3] = &raw const MARK as u64;
    info
}

static MARK: u8 = 0;

/// Puts a blocked signal back to where it was, before others of its number that wait for this
/// thread.
fn put_back(signal: c_int, info: &[u64; 16]) {
    let has_others = signal >= FIRST_QUEUED && raw::pending() & raw::bit(signal) != 0;
    let mark = mark(signal);
    let is_marked = has_others && raw::queue_to_self(signal, &mark);
    if !raw::queue_to_self(signal, info) {
        raw::kill_self(signal);
    }
    // The others are queued after it, one by one, until the mark arrives: signals pending for the
    // process come after it.
    while is_marked && let Some(other) = raw::take_pending(signal) {
        if other[3] == mark[3] && other[1] as u32 == mark[1] as u32 {
            return;
        }
        raw::queue_to_self(signal, &other);
    }
}

/// Calls the handler of a kept signal. All signals are blocked; returns the mask that is in force
/// after the handler, for a thread that had `mask`.
pub fn deliver_kept(words: &KeptInfo, mask: u64) -> u64 {
    let mut info = [0u64; 16];
    info[..words.len()].copy_from_slice(words);
    let signal = info[0] as u32 as c_int;
    let Some(action) = row(signal).map(super::Row::load) else {
        return mask;
    };
    let mut context = MaybeUninit::<libc::ucontext_t>::zeroed();
    // SAFETY: `context` is a whole structure; libc fills in the registers of this place.
    unsafe { libc::getcontext(context.as_mut_ptr()) };
    // SAFETY: zeroed and filled: every field is valid.
    let mut context = unsafe { context.assume_init() };
    context.uc_sigmask = set_of(mask);
    raw::swap_mask(mask | action.mask | raw::bit(signal));
    let (info, at) = (info.as_mut_ptr().cast(), &raw mut context);
    // SAFETY: a siginfo and a context as in a signal's frame.
    unsafe { deliver(signal, info, at.cast()) };
    raw::swap_mask(raw::BLOCK_ALL);
    mask_of(&context.uc_sigmask)
}

/// Runs the program's handler.
///
/// # Safety
/// `info` and `context` are those of the signal frame.
unsafe fn deliver(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(action) = row(signal).map(super::Row::load) else {
        return;
    };
    if !action.has_handler() {
        if action.handler == libc::SIG_DFL {
            end(signal);
        }
        return;
    }
    if action.flags & libc::SA_RESETHAND != 0 {
        super::reset(signal);
    }
    if action.flags & libc::SA_NODEFER != 0 && action.mask & raw::bit(signal) == 0 {
        let mask = raw::swap_mask(raw::BLOCK_ALL);
        raw::swap_mask(mask & !raw::bit(signal));
    }
    // SAFETY: the kernel's siginfo is 128 bytes, and its frame is ours to write.
    let words = unsafe { &mut *info.cast::<[u64; 16]>() };
    restore_code(words);
    thread::current().count_handler(action.flags & libc::SA_RESTART != 0);
    // SAFETY: the program installed this address as a handler of this kind; a handler of
    // one argument ignores the other two.
    let handler = unsafe { core::mem::transmute::<usize, Handler>(action.handler) };
    // SAFETY: called as the kernel would have called it.
    cancel::apart(|| unsafe { handler(signal, info, context) });
}

/// The default action of a signal that ends the process, after the handover.
fn end(signal: c_int) {
    if let Some(run) = AT_END.get() {
        run();
    }
    install(signal, Wanted::Plain(Action::DEFAULT));
    raw::kill_self(signal);
    raw::swap_mask(raw::BLOCK_ALL & !raw::bit(signal));
}

/// `SIGPIPE` as the kernel raises it for a write to a closed connection.
pub fn raise_pipe() {
    let mut info = [0u64; 16];
    // si_signo, si_errno, si_code (SI_USER = 0), padding, si_pid and si_uid.
    info[0] = libc::SIGPIPE as u64;
    let uid = u64::from(rustix::process::getuid().as_raw());
    info[2] = u64::from(std::process::id()) | uid << 32;
    if super::is_confined() {
        return raise_directly(libc::SIGPIPE, &info);
    }
    if !raw::queue_to_self(libc::SIGPIPE, &info) {
        raw::kill_self(libc::SIGPIPE);
    }
}

/// Raises a signal in a program that may not be allowed to send one.
fn raise_directly(signal: c_int, info: &[u64; 16]) {
    let Some(action) = row(signal).map(super::Row::load) else {
        return;
    };
    let mask = raw::swap_mask(raw::BLOCK_ALL);
    if action.has_handler() && mask & raw::bit(signal) == 0 {
        let mask = deliver_kept(&core::array::from_fn(|at| info[at]), mask);
        raw::swap_mask(mask);
        return;
    }
    raw::swap_mask(mask);
    if action.handler != libc::SIG_IGN {
        raw::kill_self(signal);
    }
}
