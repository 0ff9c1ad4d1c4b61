//! A stack of our own for work that may start on any stack: a signal handler may have one of 8 KiB,
//! on which no thread may be started.

use core::ffi::c_void;
use core::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Bytes. Handing an engine over takes some 10 KiB.
const ROOM: usize = 512 << 10;

/// Runs `work` with room enough; where there is no memory for that, on the caller's stack.
pub fn with_room<F: FnOnce()>(work: F) {
    let (access, flags) = (
        ProtFlags::READ | ProtFlags::WRITE,
        MapFlags::PRIVATE | MapFlags::NORESERVE,
    );
    // SAFETY: a new mapping at an address of the kernel's choice.
    let Ok(room) = (unsafe { mmap_anonymous(ptr::null_mut(), ROOM, access, flags) }) else {
        return work();
    };
    let mut work = Some(work);
    // SAFETY: the mapping has no other user and ends at a page's end; `run` is in an option of its
    // kind.
    unsafe {
        call_on(
            room.wrapping_byte_add(ROOM),
            run::<F>,
            (&raw mut work).cast(),
        )
    };
    // SAFETY: the mapping of above; nothing on it is in use any more.
    let _ = unsafe { munmap(room, ROOM) };
}

extern "C" fn run<F: FnOnce()>(work: *mut c_void) {
    // SAFETY: the option of `with_room`, which waits.
    let work = unsafe { &mut *work.cast::<Option<F>>() };
    if let Some(work) = work.take() {
        work();
    }
}

/// Calls `run` with the stack pointer at `top`.
///
/// # Safety
/// Below `top`, which is aligned as the ABI requires, there is an unused stack; `run` may be called
/// with `with`.
#[cfg(target_arch = "x86_64")]
unsafe fn call_on(top: *mut c_void, run: extern "C" fn(*mut c_void), with: *mut c_void) {
    // SAFETY: the callee keeps r12 and with it the way back; the caller vouches for the rest.
    unsafe {
        core::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {run}",
            "mov rsp, r12",
            top = in(reg) top,
            run = in(reg) run,
            in("rdi") with,
            out("r12") _,
            clobber_abi("C"),
        );
    }
}

/// Calls `run` with the stack pointer at `top`.
///
/// # Safety
/// Below `top`, which is aligned as the ABI requires, there is an unused stack; `run` may be called
/// with `with`.
#[cfg(target_arch = "aarch64")]
unsafe fn call_on(top: *mut c_void, run: extern "C" fn(*mut c_void), with: *mut c_void) {
    // SAFETY: the callee keeps x20 and with it the way back; the caller vouches for the rest.
    unsafe {
        core::arch::asm!(
            "mov x20, sp",
            "mov sp, {top}",
            "blr {run}",
            "mov sp, x20",
            top = in(reg) top,
            run = in(reg) run,
            in("x0") with,
            out("x20") _,
            clobber_abi("C"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_a_separate_thread_stack() {
        let (mut here, mut there) = ([0u8; 8], 0);
        let outside = here.as_mut_ptr().addr();
        with_room(|| {
            let mut much = [1u8; 256 << 10];
            let much = core::hint::black_box(&mut much);
            there = much.as_ptr().addr();
        });
        assert!(there != 0 && there.abs_diff(outside) > 256 << 10);
    }
}
