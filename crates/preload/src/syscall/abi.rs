//! The interposed `syscall`.

use core::ffi::{c_int, c_long};

use slipstack_posix::Errno;

use super::{KERNEL_SET, waits};
use crate::call::is_ours;
use crate::descriptors::identity;
use crate::privileges::abi::{before_seccomp, change_user};
use crate::privileges::is_change_of_user;
use crate::raw::{self, fail};
use crate::{
    abi, cancel, descriptors, exec, io, life, messages, privileges, process, programs, readiness,
    signals, sockets,
};

/// # Safety
/// As in C.
pub unsafe fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let args = [a, b, c, d, e, f];
    // SAFETY: the program's own call.
    let routed = cancel::raw(|| unsafe { route(number, args) });
    // SAFETY: the program's own call.
    routed.unwrap_or_else(|| raw::libc_result(unsafe { raw::syscall6(number, args) }) as c_long)
}

unsafe fn route(number: c_long, args: [usize; 6]) -> Option<c_long> {
    // SAFETY: the program's own call.
    if let Some(result) = unsafe { beginning(number, args) } {
        return Some(result);
    }
    process::current()?;
    // SAFETY: the program's own call.
    if let Some(result) = unsafe { special(number, args) } {
        return Some(result);
    }
    // SAFETY: the program's own call.
    if let Some(result) = unsafe { names(number, args) } {
        return Some(result);
    }
    // SAFETY: the program's own call.
    if let Some(result) = unsafe { waits::abi::route(number, args) } {
        return Some(result);
    }
    if !is_ours(args[0] as c_int) {
        return None;
    }
    // SAFETY: the program's own call.
    unsafe { on_ours(number, args) }
}

/// Calls that concern us also before the process has sockets.
unsafe fn beginning(number: c_long, args: [usize; 6]) -> Option<c_long> {
    let [a, b, c, d, e, _] = args;
    // SAFETY: the program's own call.
    let call = unsafe { clone_flags(number, args) };
    if call.is_some_and(|(flags, _)| flags & libc::CLONE_NEWNET as usize != 0) {
        life::abi::before_namespace();
    }
    let result = match number {
        // SAFETY: the program's own call.
        libc::SYS_socket => unsafe { sockets::abi::socket(a as c_int, b as c_int, c as c_int) },
        // SAFETY: the program's own call.
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_create => unsafe { readiness::abi::epoll_create(a as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_epoll_create1 => unsafe { readiness::abi::epoll_create1(a as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_close => unsafe { descriptors::closing::abi::close(a as c_int) },
        libc::SYS_close_range => {
            // SAFETY: the program's own call.
            unsafe { descriptors::closing::abi::close_range(a as u32, b as u32, c as c_int) }
        }
        // Its requests would reach our descriptors past us, also those that come after it; programs
        // do without it.
        libc::SYS_io_uring_setup if process::activate().is_some() => fail(Errno::ENOSYS),
        // SAFETY: the program's own call.
        libc::SYS_execve => unsafe {
            exec::abi::execve(a as *const _, b as *const _, c as *const _)
        },
        libc::SYS_execveat => {
            // SAFETY: the program's own call.
            unsafe {
                exec::abi::execveat(a as c_int, b as _, c as *const _, d as *const _, e as c_int)
            }
        }
        // SAFETY: the program's own call.
        libc::SYS_bpf => unsafe { programs::abi::bpf(a, b, c)? },
        // SAFETY: the program's own call.
        libc::SYS_setns => unsafe { life::abi::setns(a as c_int, b as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_unshare => unsafe { life::abi::unshare(a as c_int) },
        // SAFETY: the program's own call.
        _ if unsafe { is_fork(number, args) } => unsafe { fork(number, args) },
        _ => return None,
    };
    Some(result.into())
}

/// The length of `clone3`'s structure in its first version (CLONE_ARGS_SIZE_VER0).
const CLONE3_LEN: usize = 64;

/// The structure of a `clone3` that the kernel may take.
unsafe fn clone3_words(args: [usize; 6]) -> Option<[u64; CLONE3_LEN / 8]> {
    let [words, len, ..] = args;
    let words = words as *const [u64; CLONE3_LEN / 8];
    // SAFETY: the program's structure.
    (len >= CLONE3_LEN && !abi::is_out_of_reach(words)).then(|| unsafe { words.read_unaligned() })
}

/// The flags of a `clone` and its stack; `None`: it is another call.
unsafe fn clone_flags(number: c_long, args: [usize; 6]) -> Option<(usize, usize)> {
    match number {
        libc::SYS_clone => Some((args[0], args[1])),
        libc::SYS_clone3 => {
            // SAFETY: the program's own call.
            let [flags, _, _, _, _, stack, ..] = unsafe { clone3_words(args) }?;
            Some((flags as usize, stack as usize))
        }
        _ => None,
    }
}

/// Whether the call makes a child with a memory of its own that goes on where its parent does.
unsafe fn is_fork(number: c_long, args: [usize; 6]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(number, libc::SYS_fork | libc::SYS_vfork) {
        return true;
    }
    // SAFETY: the program's own call.
    let call = unsafe { clone_flags(number, args) };
    call.is_some_and(|(flags, stack)| flags & libc::CLONE_VM as usize == 0 && stack == 0)
}

/// As libc's `_Fork`, with the flags of the call.
unsafe fn fork(number: c_long, mut args: [usize; 6]) -> c_int {
    if number == libc::SYS_clone {
        args[0] &= !(libc::CLONE_VFORK as usize);
    }
    // SAFETY: the program's own call; the child goes on from here on a copy of this stack.
    process::forked(|| raw::libc_result(unsafe { raw::syscall6(as_fork(number), args) }) as c_int)
}

/// A child that shared our memory would change the parent's sockets.
#[cfg(target_arch = "x86_64")]
fn as_fork(number: c_long) -> c_long {
    match number {
        libc::SYS_vfork => libc::SYS_fork,
        other => other,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn as_fork(number: c_long) -> c_long {
    number
}

/// Calls that concern us whatever their first argument is, once the process has sockets.
unsafe fn special(number: c_long, args: [usize; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = args;
    let result = match number {
        // SAFETY: the program's own call.
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => unsafe { descriptors::abi::dup2(a as c_int, b as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_dup3 => unsafe { descriptors::abi::dup3(a as c_int, b as c_int, c as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_exit_group => unsafe { life::abi::exit_now(a as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_rt_sigaction if d == KERNEL_SET => unsafe {
            signals::abi::kernel_sigaction(a as c_int, b as *const _, c as *mut _)?
        },
        // SAFETY: the program's own call.
        libc::SYS_capset => unsafe { privileges::abi::capset(a as *mut _, b as *const _) },
        // SAFETY: the program's own call.
        libc::SYS_prctl => unsafe { privileges::abi::prctl(a as c_int, b, c, d, e) },
        libc::SYS_seccomp => {
            before_seccomp(a, b, c);
            return None;
        }
        // SAFETY: the program's own call.
        _ if is_change_of_user(number) => unsafe {
            return Some(change_user(number, args));
        },
        // Descriptors of ours may be in a message of the kernel's.
        // SAFETY: the program's own call.
        libc::SYS_recvmsg => unsafe {
            return Some(messages::abi::recvmsg(a as c_int, b as *mut _, c as c_int) as c_long);
        },
        // SAFETY: the program's own call.
        libc::SYS_sendmsg => unsafe {
            return Some(messages::abi::sendmsg(a as c_int, b as *const _, c as c_int) as c_long);
        },
        libc::SYS_recvmmsg => {
            // SAFETY: the program's own call.
            unsafe {
                messages::many::abi::recvmmsg(
                    a as c_int,
                    b as *mut _,
                    c as u32,
                    d as c_int,
                    e as *mut _,
                )
            }
        }
        libc::SYS_sendmmsg => {
            // SAFETY: the program's own call.
            unsafe { messages::many::abi::sendmmsg(a as c_int, b as *mut _, c as u32, d as c_int) }
        }
        // SAFETY: the program's own call.
        libc::SYS_splice => unsafe {
            let moved = io::abi::splice(a as c_int, b as _, c as c_int, d as _, e, f as u32);
            return Some(moved as c_long);
        },
        _ => return None,
    };
    Some(result.into())
}

/// Calls that tell which file a name or a number stands for.
unsafe fn names(number: c_long, args: [usize; 6]) -> Option<c_long> {
    let [a, b, c, d, e, _] = args;
    let result = match number {
        // SAFETY: the program's own call.
        #[cfg(target_arch = "x86_64")]
        libc::SYS_readlink => unsafe { identity::abi::readlink(a as *const _, b as *mut _, c) },
        // SAFETY: the program's own call.
        libc::SYS_readlinkat => unsafe {
            identity::abi::readlinkat(a as c_int, b as *const _, c as *mut _, d)
        },
        // SAFETY: the program's own call.
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat => unsafe { identity::abi::stat(a as *const _, b as *mut _) as isize },
        // SAFETY: the program's own call.
        libc::SYS_newfstatat => unsafe {
            identity::abi::fstatat(a as c_int, b as *const _, c as *mut _, d as c_int) as isize
        },
        // SAFETY: the program's own call.
        libc::SYS_statx => unsafe {
            let (at, path, flags) = (a as c_int, b as *const _, c as c_int);
            identity::abi::statx(at, path, flags, d as u32, e as *mut _) as isize
        },
        // SAFETY: the program's own call.
        libc::SYS_kcmp => return unsafe { identity::abi::kcmp(args) },
        _ => return None,
    };
    Some(result as c_long)
}

/// Calls whose first argument is a descriptor of ours.
unsafe fn on_ours(number: c_long, args: [usize; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = args;
    let fd = a as c_int;
    let result = match number {
        // SAFETY: the program's own call.
        libc::SYS_read => unsafe { io::abi::read(fd, b as *mut _, c) },
        // SAFETY: the program's own call.
        libc::SYS_write => unsafe { io::abi::write(fd, b as *const _, c) },
        // SAFETY: the program's own call.
        libc::SYS_readv => unsafe { io::abi::readv(fd, b as *const _, c as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_writev => unsafe { io::abi::writev(fd, b as *const _, c as c_int) },
        libc::SYS_recvfrom => {
            // SAFETY: the program's own call.
            unsafe { io::abi::recvfrom(fd, b as *mut _, c, d as c_int, e as *mut _, f as *mut _) }
        }
        libc::SYS_sendto => {
            // SAFETY: the program's own call.
            unsafe { io::abi::sendto(fd, b as *const _, c, d as c_int, e as *const _, f as u32) }
        }
        // On a 64-bit kernel the offset is one word; the other half of it is passed over.
        // SAFETY: the program's own call.
        libc::SYS_preadv2 => unsafe {
            io::abi::preadv2(
                fd,
                b as *const _,
                c as c_int,
                d.cast_signed() as _,
                f as c_int,
            )
        },
        // SAFETY: the program's own call.
        libc::SYS_pwritev2 => unsafe {
            io::abi::pwritev2(
                fd,
                b as *const _,
                c as c_int,
                d.cast_signed() as _,
                f as c_int,
            )
        },
        // SAFETY: the program's own call.
        libc::SYS_sendfile => unsafe { io::abi::sendfile(fd, b as c_int, c as *mut _, d) },
        // SAFETY: the program's own call.
        _ => return unsafe { on_ours_plain(number, args) },
    };
    Some(result as c_long)
}

/// As [`on_ours`], for the calls that answer with an int.
unsafe fn on_ours_plain(number: c_long, args: [usize; 6]) -> Option<c_long> {
    let [a, b, c, d, e, _] = args;
    let fd = a as c_int;
    let result = match number {
        // SAFETY: the program's own call.
        libc::SYS_connect => unsafe { sockets::abi::connect(fd, b as *const _, c as u32) },
        // SAFETY: the program's own call.
        libc::SYS_bind => unsafe { sockets::abi::bind(fd, b as *const _, c as u32) },
        // SAFETY: the program's own call.
        libc::SYS_listen => unsafe { sockets::abi::listen(fd, b as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_accept => unsafe { sockets::abi::accept(fd, b as *mut _, c as *mut _) },
        libc::SYS_accept4 => {
            // SAFETY: the program's own call.
            unsafe { sockets::abi::accept4(fd, b as *mut _, c as *mut _, d as c_int) }
        }
        // SAFETY: the program's own call.
        libc::SYS_shutdown => unsafe { sockets::abi::shutdown(fd, b as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_getsockname => unsafe { sockets::abi::getsockname(fd, b as *mut _, c as *mut _) },
        // SAFETY: the program's own call.
        libc::SYS_getpeername => unsafe { sockets::abi::getpeername(fd, b as *mut _, c as *mut _) },
        libc::SYS_getsockopt => {
            // SAFETY: the program's own call.
            unsafe {
                sockets::abi::getsockopt(fd, b as c_int, c as c_int, d as *mut _, e as *mut _)
            }
        }
        libc::SYS_setsockopt => {
            // SAFETY: the program's own call.
            unsafe { sockets::abi::setsockopt(fd, b as c_int, c as c_int, d as *const _, e as u32) }
        }
        // SAFETY: the program's own call.
        libc::SYS_fstat => unsafe { identity::abi::fstat(fd, b as *mut _) },
        // SAFETY: the program's own call.
        libc::SYS_dup => unsafe { descriptors::abi::dup(fd) },
        // SAFETY: the program's own call.
        libc::SYS_fcntl => unsafe { descriptors::abi::fcntl(fd, b as c_int, c) },
        // SAFETY: the program's own call.
        libc::SYS_ioctl => unsafe { descriptors::abi::ioctl(fd, b as u64, c as *mut _) },
        libc::SYS_epoll_ctl => {
            // SAFETY: the program's own call.
            unsafe { readiness::abi::epoll_ctl(fd, b as c_int, c as c_int, d as *mut _) }
        }
        _ => return None,
    };
    Some(result.into())
}
