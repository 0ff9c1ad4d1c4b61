//! Our handler and the program's behind it.

use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, transmute};

use slipstack_abi::raw;
use slipstack_posix::Errno;

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// Puts our handler before the program's, whose address is returned; `None`: it stands there
/// already.
pub fn stand_in_front(signal: c_int) -> Result<Option<usize>, Errno> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a structure of ours.
    let result = unsafe { libc::sigaction(signal, core::ptr::null(), action.as_mut_ptr()) };
    if result < 0 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: libc has filled it.
    let mut action = unsafe { action.assume_init() };
    let ours = on_signal as Handler as usize;
    if action.sa_sigaction == ours {
        return Ok(None);
    }
    let before = action.sa_sigaction;
    action.sa_sigaction = ours;
    action.sa_flags |= libc::SA_SIGINFO;
    if matches!(before, libc::SIG_DFL | libc::SIG_IGN) {
        action.sa_flags |= libc::SA_RESTART;
    }
    // SAFETY: a structure of ours; the handler stays loaded as long as the library.
    let result = unsafe { libc::sigaction(signal, &raw const action, core::ptr::null_mut()) };
    match result {
        0 => Ok(Some(before)),
        _ => Err(Errno::EINVAL),
    }
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let errno = raw::errno();
    match super::on_signal(signal) {
        libc::SIG_IGN => {}
        libc::SIG_DFL => by_default(signal),
        handler => {
            // SAFETY: the program's handler, which takes one argument or these three.
            let handler = unsafe { transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
    }
    raw::set_errno(errno);
}

/// Does what would have happened without a handler.
fn by_default(signal: c_int) {
    if matches!(
        signal,
        libc::SIGCHLD | libc::SIGURG | libc::SIGWINCH | libc::SIGCONT
    ) {
        return;
    }
    // SAFETY: the default action ends (or stops) the process when the signal comes again.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    raw::kill_self(signal);
}

/// Safe in a handler.
pub fn ring(bell: c_int) {
    let one = 1u64;
    let args = [bell as usize, &raw const one as usize, 8, 0, 0, 0];
    // SAFETY: eight bytes of ours; a descriptor that is not open is refused.
    unsafe { raw::syscall6(libc::SYS_write, args) };
}
