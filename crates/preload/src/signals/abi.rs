//! Interposed calls that set signal actions.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

use slipstack_posix::Errno;

use super::io::restore_code;
use super::{Action, INTERRUPTING, is_for_programs, is_on, set, sys};
use crate::next;
use crate::raw;
use crate::thread::InCall;

/// # Safety
/// As `sigaction`.
pub unsafe fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if !is_on() || !is_for_programs(signal) {
        // SAFETY: the program's own call.
        return unsafe { (next::sigaction.get())(signal, new, old) };
    }
    // SAFETY: null or a structure of the program's.
    let action = unsafe { new.as_ref() }.map(sys::from_c);
    let Some(before) = change(signal, action) else {
        return raw::fail(Errno::EINVAL);
    };
    // SAFETY: null or a structure of the program's.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = sys::to_c(before);
    }
    0
}

/// struct kernel_sigaction.
#[repr(C)]
pub struct KernelAction {
    pub handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

impl KernelAction {
    pub const DEFAULT: KernelAction = KernelAction {
        handler: libc::SIG_DFL,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
}

/// The system call `rt_sigaction`; `None` if the kernel has to answer. Handlers return by libc's
/// restorer, whatever the program's is.
///
/// # Safety
/// As the system call.
pub unsafe fn kernel_sigaction(
    signal: c_int,
    new: *const KernelAction,
    old: *mut KernelAction,
) -> Option<c_int> {
    if !is_on() || !is_for_programs(signal) {
        return None;
    }
    // SAFETY: null or a structure of the program's.
    let action = unsafe { new.as_ref() }.map(|new| Action {
        handler: new.handler,
        flags: new.flags as c_int & !sys::SA_RESTORER,
        mask: new.mask,
    });
    let Some(before) = change(signal, action) else {
        return Some(raw::fail(Errno::EINVAL));
    };
    // SAFETY: null or a structure of the program's.
    if let Some(old) = unsafe { old.as_mut() } {
        *old = KernelAction {
            handler: before.handler,
            flags: before.flags as usize,
            restorer: 0,
            mask: before.mask,
        };
    }
    Some(0)
}

fn change(signal: c_int, action: Option<Action>) -> Option<Action> {
    let _in_call = InCall::enter();
    set(signal, action)
}

/// `signal` and its variants: sets `handler` with `flags` and gives the old handler.
fn set_handler(signal: c_int, handler: usize, flags: c_int) -> usize {
    if handler == libc::SIG_ERR || !is_for_programs(signal) {
        raw::set_errno(libc::EINVAL);
        return libc::SIG_ERR;
    }
    let mask = if flags & libc::SA_NODEFER == 0 {
        raw::bit(signal)
    } else {
        0
    };
    match change(
        signal,
        Some(Action {
            handler,
            flags,
            mask,
        }),
    ) {
        Some(old) => old.handler,
        None => {
            raw::set_errno(libc::EINVAL);
            libc::SIG_ERR
        }
    }
}

/// # Safety
/// As `signal`.
pub unsafe fn signal(signal: c_int, handler: usize) -> usize {
    if !is_on() {
        // SAFETY: the program's own call.
        return unsafe { (next::signal.get())(signal, handler) };
    }
    let interrupts = is_for_programs(signal) && INTERRUPTING.load(Relaxed) & raw::bit(signal) != 0;
    set_handler(
        signal,
        handler,
        if interrupts { 0 } else { libc::SA_RESTART },
    )
}

/// # Safety
/// As `sysv_signal`.
pub unsafe fn sysv_signal(signal: c_int, handler: usize) -> usize {
    if !is_on() {
        // SAFETY: the program's own call.
        return unsafe { (next::sysv_signal.get())(signal, handler) };
    }
    set_handler(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
}

/// # Safety
/// As `siginterrupt`.
pub unsafe fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: the program's own call; it also informs libc's `signal`.
    let result = unsafe { (next::siginterrupt.get())(signal, interrupts) };
    if result != 0 || !is_on() || !is_for_programs(signal) {
        return result;
    }
    if interrupts != 0 {
        INTERRUPTING.fetch_or(raw::bit(signal), Relaxed);
    } else {
        INTERRUPTING.fetch_and(!raw::bit(signal), Relaxed);
    }
    if let Some(mut action) = change(signal, None) {
        let restart = if interrupts == 0 { libc::SA_RESTART } else { 0 };
        action.flags = action.flags & !libc::SA_RESTART | restart;
        change(signal, Some(action));
    }
    0
}

/// # Safety
/// As `sigignore`.
pub unsafe fn sigignore(signal: c_int) -> c_int {
    if !is_on() || !is_for_programs(signal) {
        // SAFETY: the program's own call.
        return unsafe { (next::sigignore.get())(signal) };
    }
    let ignore = Action {
        handler: libc::SIG_IGN,
        flags: 0,
        mask: 0,
    };
    change(signal, Some(ignore)).map_or(-1, |_| 0)
}

/// # Safety
/// As `sigwaitinfo`.
pub unsafe fn sigwaitinfo(set: *const libc::sigset_t, info: *mut libc::siginfo_t) -> c_int {
    // SAFETY: the program's own call.
    let signal = unsafe { (next::sigwaitinfo.get())(set, info) };
    // SAFETY: as of this function.
    unsafe { on_waited(signal, info) };
    signal
}

/// # Safety
/// As `sigtimedwait`.
pub unsafe fn sigtimedwait(
    set: *const libc::sigset_t,
    info: *mut libc::siginfo_t,
    timeout: *const libc::timespec,
) -> c_int {
    // SAFETY: the program's own call.
    let signal = unsafe { (next::sigtimedwait.get())(set, info, timeout) };
    // SAFETY: as of this function.
    unsafe { on_waited(signal, info) };
    signal
}

/// # Safety
/// `info` is null or a `siginfo_t` that the kernel has written, if there is a signal.
unsafe fn on_waited(signal: c_int, info: *mut libc::siginfo_t) {
    // SAFETY: a siginfo_t has 128 bytes.
    let info = unsafe { info.cast::<[u64; 16]>().as_mut() };
    if let Some(info) = info.filter(|_| signal > 0) {
        restore_code(info);
    }
}

/// `SIG_HOLD` of `sigset`.
const SIG_HOLD: usize = 2;

/// # Safety
/// As `sigset`.
pub unsafe fn sigset(signal: c_int, handler: usize) -> usize {
    if !is_on() || !is_for_programs(signal) {
        // SAFETY: the program's own call.
        return unsafe { (next::sigset.get())(signal, handler) };
    }
    let was_blocked = {
        let mask = raw::swap_mask(raw::BLOCK_ALL);
        let wanted = if handler == SIG_HOLD {
            mask | raw::bit(signal)
        } else {
            mask & !raw::bit(signal)
        };
        raw::swap_mask(wanted);
        mask & raw::bit(signal) != 0
    };
    let action = (handler != SIG_HOLD).then_some(Action {
        handler,
        flags: 0,
        mask: 0,
    });
    match change(signal, action) {
        Some(_) if was_blocked => SIG_HOLD,
        Some(old) => old.handler,
        None => libc::SIG_ERR,
    }
}
