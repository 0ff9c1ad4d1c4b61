//! Raw system calls and `errno`, for code that runs before anything is initialised, inside signal
//! handlers, and between fork and exec.

use core::ffi::{CStr, c_int, c_long};
use core::mem::MaybeUninit;

use slipstack_posix::{Errno, Owner, OwnerKind};

/// One system call; the answer is the kernel's (`-errno` for failures).
///
/// # Safety
/// As the system call itself.
#[cfg(target_arch = "x86_64")]
pub unsafe fn syscall6(number: c_long, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for the call; `syscall` clobbers rcx and r11 only.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// One system call; the answer is the kernel's (`-errno` for failures).
///
/// # Safety
/// As the system call itself.
#[cfg(target_arch = "aarch64")]
pub unsafe fn syscall6(number: c_long, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for the call.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    result
}

/// The calling thread's `errno`.
pub fn errno() -> c_int {
    // SAFETY: takes nothing.
    let at = unsafe { libc::__errno_location() };
    // SAFETY: libc's pointer to this thread's errno is always valid.
    unsafe { *at }
}

pub fn set_errno(value: c_int) {
    // SAFETY: takes nothing.
    let at = unsafe { libc::__errno_location() };
    // SAFETY: libc's pointer to this thread's errno is always valid.
    unsafe { *at = value };
}

/// Sets `errno` and gives the answer of a failed call.
pub fn fail(errno: Errno) -> c_int {
    set_errno(errno.0);
    -1
}

/// Turns the kernel's answer into libc's.
pub fn libc_result(result: isize) -> isize {
    if (-4095..0).contains(&result) {
        set_errno(-(result as c_int));
        return -1;
    }
    result
}

/// The kernel's part of a signal set.
pub fn mask_of(set: &libc::sigset_t) -> u64 {
    // SAFETY: glibc's sigset_t is 128 bytes of plain words; the kernel uses the first.
    unsafe { *core::ptr::from_ref(set).cast::<u64>() }
}

/// One system call with libc's way of answering: -1 and `errno`.
///
/// # Safety
/// As the system call itself.
pub unsafe fn system(number: c_long, args: [usize; 6]) -> isize {
    // SAFETY: as the caller vouches.
    libc_result(unsafe { syscall6(number, args) })
}

/// All signals but those that mean the running instruction failed.
pub const BLOCK_ALL: u64 = !(bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGFPE)
    | bit(libc::SIGILL)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS)
    | bit(libc::SIGABRT)
    | bit(SIGSETXID));

/// glibc's own signal that carries `setuid` to all threads; never blocked by us.
pub const SIGSETXID: c_int = 33;

/// The bit of `signal` in a kernel signal set.
pub const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Replaces this thread's signal mask and gives the old one.
pub fn swap_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    let args = [
        libc::SIG_SETMASK as usize,
        &raw const mask as usize,
        &raw mut old as usize,
        8,
        0,
        0,
    ];
    // SAFETY: both pointers are to live 8-byte kernel signal sets.
    unsafe { syscall6(libc::SYS_rt_sigprocmask, args) };
    old
}

/// Signals that wait for this thread or the process, of those that are blocked.
pub fn pending() -> u64 {
    let mut set = 0u64;
    let args = [&raw mut set as usize, 8, 0, 0, 0, 0];
    // SAFETY: the pointer is to a live 8-byte kernel signal set.
    unsafe { syscall6(libc::SYS_rt_sigpending, args) };
    set
}

/// Runs the handlers of pending signals that `mask` lets in, if there are any; then the old mask is
/// restored.
pub fn let_in(mask: u64) {
    let now = [0u64; 2];
    let args = [0, 0, now.as_ptr() as usize, &raw const mask as usize, 8, 0];
    // SAFETY: no descriptors, a live time and a live kernel signal set.
    unsafe { syscall6(libc::SYS_ppoll, args) };
}

/// Takes a blocked `signal` that waits, this thread's before the process's.
pub fn take_pending(signal: c_int) -> Option<[u64; 16]> {
    let (set, now, mut info) = (bit(signal), [0u64; 2], [0u64; 16]);
    let args = [
        &raw const set as usize,
        info.as_mut_ptr() as usize,
        now.as_ptr() as usize,
        8,
        0,
        0,
    ];
    // SAFETY: a live kernel signal set, a siginfo_t's room and a live time.
    let result = unsafe { syscall6(libc::SYS_rt_sigtimedwait, args) };
    (result == signal as isize).then_some(info)
}

/// Sends `signal` to the calling thread with the given kernel `siginfo` (128 bytes).
pub fn queue_to_self(signal: c_int, info: &[u64; 16]) -> bool {
    let args = [
        std::process::id() as usize,
        thread_id(),
        signal as usize,
        info.as_ptr() as usize,
        0,
        0,
    ];
    // SAFETY: `info` is as large as a siginfo_t; the target is this thread.
    unsafe { syscall6(libc::SYS_rt_tgsigqueueinfo, args) == 0 }
}

/// Sends `signal` to a thread of this process, with a value (SI_QUEUE). Whether there is such a
/// thread.
pub fn queue_to_thread(thread: u32, signal: c_int, value: usize) -> bool {
    let process = std::process::id();
    let mut info = [0u64; 16];
    info[0] = signal as u64;
    info[1] = u64::from(libc::SI_QUEUE.cast_unsigned());
    info[2] = u64::from(process);
    info[3] = value as u64;
    let (thread, at) = (thread as usize, info.as_ptr() as usize);
    let args = [process as usize, thread, signal as usize, at, 0, 0];
    // SAFETY: `info` is as large as a siginfo_t.
    unsafe { syscall6(libc::SYS_rt_tgsigqueueinfo, args) == 0 }
}

/// As [`queue_to_self`], to this process, for any of its threads. The kernel takes its own codes
/// only from a thread that names itself.
pub fn queue_to_process(signal: c_int, info: &[u64; 16]) -> bool {
    let at = info.as_ptr() as usize;
    let args = [thread_id(), signal as usize, at, 0, 0, 0];
    // SAFETY: `info` is as large as a siginfo_t.
    unsafe { syscall6(libc::SYS_rt_sigqueueinfo, args) == 0 }
}

/// As [`queue_to_self`], to the owner of a socket; `false`: not to all processes of a group.
pub fn queue_to(owner: Owner, signal: c_int, info: &[u64; 16]) -> bool {
    let (id, signal, info) = (owner.id as usize, signal as usize, info.as_ptr() as usize);
    let (number, args) = match owner.kind {
        OwnerKind::Group => return false,
        OwnerKind::Process => (libc::SYS_rt_sigqueueinfo, [id, signal, info, 0, 0, 0]),
        OwnerKind::Thread => {
            let process = std::process::id() as usize;
            (
                libc::SYS_rt_tgsigqueueinfo,
                [process, id, signal, info, 0, 0],
            )
        }
    };
    // SAFETY: `info` is as large as a siginfo_t.
    unsafe { syscall6(number, args) == 0 }
}

/// Sends a signal to the owner of a socket, if there is one.
pub fn signal(owner: Owner, signal: c_int) {
    let (number, to) = match (owner.id, owner.kind) {
        (0, _) => return,
        (id, OwnerKind::Group) => (libc::SYS_kill, -id),
        (id, OwnerKind::Process) => (libc::SYS_kill, id),
        (id, OwnerKind::Thread) => (libc::SYS_tkill, id),
    };
    let args = [to as usize, signal as usize, 0, 0, 0, 0];
    // SAFETY: sends a signal; no memory is touched.
    unsafe { syscall6(number, args) };
}

/// As `tgkill(getpid(), gettid(), signal)`.
pub fn kill_self(signal: c_int) {
    let args = [
        std::process::id() as usize,
        thread_id(),
        signal as usize,
        0,
        0,
        0,
    ];
    // SAFETY: sends a signal to this thread; no memory is touched.
    unsafe { syscall6(libc::SYS_tgkill, args) };
}

/// Rings an eventfd.
pub fn ring(doorbell: c_int) {
    let one = 1u64;
    let args = [doorbell as usize, &raw const one as usize, 8, 0, 0, 0];
    // SAFETY: the pointer is to eight live bytes.
    unsafe { syscall6(libc::SYS_write, args) };
}

/// Has all other threads of the process pass a full memory barrier, where the kernel can do that.
pub fn order_threads() {
    const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;
    const PRIVATE_EXPEDITED: usize = 1 << 3;
    for command in [REGISTER_PRIVATE_EXPEDITED, PRIVATE_EXPEDITED] {
        // SAFETY: touches no memory of ours.
        unsafe { syscall6(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) };
    }
}

pub fn thread_id() -> usize {
    // SAFETY: gettid takes nothing and always succeeds.
    (unsafe { syscall6(libc::SYS_gettid, [0; 6]) }) as usize
}

/// Appends to a file, which is made if there is none. Returns whether all was written.
pub fn append(path: &CStr, bytes: &[u8]) -> bool {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    let args = [
        libc::AT_FDCWD as usize,
        path.as_ptr() as usize,
        flags as usize,
        0o644,
        0,
        0,
    ];
    // SAFETY: the path is a live string that ends with a zero.
    let fd = unsafe { syscall6(libc::SYS_openat, args) };
    if fd < 0 {
        return false;
    }
    let args = [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
    // SAFETY: the pointer and length are those of a live slice.
    let written = unsafe { syscall6(libc::SYS_write, args) };
    // SAFETY: the descriptor was opened here and nothing else has its number.
    unsafe { syscall6(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
    written == bytes.len() as isize
}

/// Whether standard input and standard error are one socket.
fn is_conversation() -> bool {
    let [input, error] = [0, 2].map(status);
    let is_same = |a: libc::stat, b: libc::stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
    matches!((input, error), (Some(input), Some(error))
        if error.st_mode & libc::S_IFMT == libc::S_IFSOCK && is_same(input, error))
}

fn status(fd: usize) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    let args = [fd, status.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes a `struct stat`, for which there is room.
    let got = unsafe { syscall6(libc::SYS_fstat, args) };
    // SAFETY: a call that succeeded has filled it.
    (got == 0).then(|| unsafe { status.assume_init() })
}

/// Writes to standard error, whatever the program has done to libc. Nothing is written if that is
/// the program's connection, as inetd makes it: its peer would take it for an answer.
pub fn write_stderr(bytes: &[u8]) {
    if is_conversation() {
        return;
    }
    let args = [2, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
    // SAFETY: the pointer and length are those of a live slice.
    unsafe { syscall6(libc::SYS_write, args) };
}
