//! libc's threads, and the signal mask, name and time slice of the calling one.

use core::ffi::{CStr, c_int, c_void};
use core::marker::PhantomData;
use std::io;
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::beginning;

/// A thread that is joined when this is dropped.
#[derive(Debug)]
pub(super) struct Thread<'a> {
    id: libc::pthread_t,
    body: PhantomData<&'a ()>,
}

/// Whether this process may start no more threads.
static STARTS_NONE: AtomicBool = AtomicBool::new(false);

pub(super) fn start_no_more() {
    STARTS_NONE.store(true, Ordering::Relaxed);
}

type Body<'a> = Box<dyn FnOnce() + Send + 'a>;

impl<'a> Thread<'a> {
    /// Starts a thread with `stack` bytes of stack, which says itself that it has begun. The result
    /// must not be forgotten, because `body` may borrow for its lifetime.
    pub(super) fn start(stack: usize, body: Body<'a>) -> io::Result<Thread<'a>> {
        if STARTS_NONE.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        // SAFETY: the call initialises its argument.
        unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
        // SAFETY: initialised above; a size that is refused changes nothing.
        unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack) };
        let body = Box::into_raw(Box::new(body));
        let mut id = 0;
        // From here on nothing of ours is waited for that a fork may have.
        beginning::note_start();
        // SAFETY: `run` takes the `body`, and nothing else does unless there is no thread.
        let error =
            unsafe { libc::pthread_create(&raw mut id, attributes.as_ptr(), run, body.cast()) };
        // SAFETY: initialised above and not used again.
        unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
        if error != 0 {
            beginning::note_failed();
            // SAFETY: made by `into_raw` above; there is no thread that has it.
            drop(unsafe { Box::from_raw(body) });
            return Err(io::Error::from_raw_os_error(error));
        }
        let body = PhantomData;
        Ok(Thread { id, body })
    }
}

impl Thread<'static> {
    /// Detaches the thread: it is not joined.
    pub(super) fn detach(self) {
        // SAFETY: it has been neither joined nor detached.
        unsafe { libc::pthread_detach(self.id) };
        mem::forget(self);
    }
}

impl Drop for Thread<'_> {
    fn drop(&mut self) {
        // SAFETY: it has been neither joined nor detached.
        unsafe { libc::pthread_join(self.id, ptr::null_mut()) };
    }
}

extern "C" fn run(body: *mut c_void) -> *mut c_void {
    // SAFETY: `start` has made it for this thread alone.
    let body = unsafe { Box::from_raw(body.cast::<Body<'_>>()) };
    body();
    ptr::null_mut()
}

/// Names the calling thread, in 15 bytes at most.
pub(super) fn call_it(name: &CStr) {
    // SAFETY: the kernel copies the string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Blocks all signals that can be blocked and returns the mask that was in force.
pub(super) fn block_all() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set it is given.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both point to sets of this frame; `all` is initialised.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: zeroed is a valid set, and the call has filled it in.
    unsafe { before.assume_init() }
}

pub(super) fn restore(before: &libc::sigset_t) {
    // SAFETY: `before` is an initialised set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Disables cancellation of the calling thread; returns the previous state.
pub(super) fn disable_cancelling() -> c_int {
    let mut before = 0;
    // SAFETY: `before` is a live place.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
    before
}

pub(super) fn set_cancelling(before: c_int) {
    let mut disabled = 0;
    // SAFETY: `before` is a state that was in force; `disabled` is a live place.
    unsafe { pthread_setcancelstate(before, &raw mut disabled) };
}

/// The shortest slice that the kernel grants.
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr` in its first version.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks for a short slice, which since Linux 6.12 also means an earlier turn (sched(7) of ordinary
/// threads, `sched_runtime`); kernels before that take no notice. Nothing else changes.
pub(super) fn shorten_slice() {
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>();
    // SAFETY: the kernel writes at most `size` bytes, which `attr` has.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    if read != 0 || attr.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attr.runtime = SLICE_NS;
    // SAFETY: the kernel reads `attr.size` bytes, which the call above has set to its length.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

#[cfg(test)]
mod tests {
    use core::ffi::c_void;
    use core::sync::atomic::{AtomicBool, Ordering};
    use std::thread::sleep;
    use std::time::Duration;

    use super::ptr;
    use crate::thread::with_room;

    extern "C" fn wait(is_back: *mut c_void) -> *mut c_void {
        with_room(|| sleep(Duration::from_millis(100)));
        // SAFETY: the test's, which waits for this thread.
        let is_back = unsafe { &*is_back.cast::<AtomicBool>() };
        is_back.store(true, Ordering::Relaxed);
        ptr::null_mut()
    }

    #[test]
    fn pthread_cancel_waits_for_work_on_a_larger_stack() {
        let is_back = AtomicBool::new(false);
        let mut thread = 0;
        let at = (&raw const is_back).cast_mut().cast();
        // SAFETY: `wait` takes the value at `at`, which outlives the thread.
        let made = unsafe { libc::pthread_create(&raw mut thread, ptr::null(), wait, at) };
        assert_eq!(made, 0);
        sleep(Duration::from_millis(30));
        // SAFETY: the thread has not been joined.
        unsafe { libc::pthread_cancel(thread) };
        // SAFETY: as above; its result is not used.
        unsafe { libc::pthread_join(thread, ptr::null_mut()) };
        assert!(is_back.load(Ordering::Relaxed));
    }
}
