//! The hooked `syscall`.

use core::ffi::{c_int, c_long};

use slipstack_posix::Errno;

use crate::call::is_ours;
use crate::life;
use crate::raw::{self, fail};
use crate::symbols::exported as hooked;

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
    if life::process().is_some() {
        // SAFETY: the program's own call.
        if let Some(result) = unsafe { special(number, args) } {
            return result;
        }
        if is_ours(a as c_int) {
            // SAFETY: the program's own call.
            if let Some(result) = unsafe { on_ours(number, args) } {
                return result;
            }
        }
    } else if number == libc::SYS_socket {
        // SAFETY: the program's own call.
        return unsafe { hooked::socket(a as c_int, b as c_int, c as c_int) }.into();
    }
    // SAFETY: the program's own call.
    raw::libc_result(unsafe { raw::syscall6(number, args) }) as c_long
}

/// Calls that concern us whatever their first argument is.
unsafe fn special(number: c_long, args: [usize; 6]) -> Option<c_long> {
    let [a, b, c, d, e, _] = args;
    let result = match number {
        // Its requests would reach our descriptors past us; programs do without it.
        libc::SYS_io_uring_setup => fail(Errno::ENOSYS),
        // SAFETY: the program's own call.
        libc::SYS_socket => unsafe { hooked::socket(a as c_int, b as c_int, c as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_close => unsafe { hooked::close(a as c_int) },
        libc::SYS_close_range => {
            // SAFETY: the program's own call.
            unsafe { hooked::close_range(a as u32, b as u32, c as c_int) }
        }
        // SAFETY: the program's own call.
        libc::SYS_dup3 => unsafe { hooked::dup3(a as c_int, b as c_int, c as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_exit_group => unsafe { hooked::_exit(a as c_int) },
        libc::SYS_ppoll if e == 8 => {
            // SAFETY: the program's own call; the kernel's set is the first word of libc's.
            unsafe { hooked::ppoll(a as *mut _, b as _, c as *const _, d as *const _) }
        }
        // SAFETY: the program's own call.
        libc::SYS_epoll_create1 => unsafe { hooked::epoll_create1(a as c_int) },
        _ => return None,
    };
    Some(result.into())
}

/// Calls whose first argument is a descriptor of ours.
unsafe fn on_ours(number: c_long, args: [usize; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = args;
    let fd = a as c_int;
    let result = match number {
        // SAFETY: the program's own call.
        libc::SYS_read => unsafe { hooked::read(fd, b as *mut _, c) },
        // SAFETY: the program's own call.
        libc::SYS_write => unsafe { hooked::write(fd, b as *const _, c) },
        // SAFETY: the program's own call.
        libc::SYS_readv => unsafe { hooked::readv(fd, b as *const _, c as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_writev => unsafe { hooked::writev(fd, b as *const _, c as c_int) },
        libc::SYS_recvfrom => {
            // SAFETY: the program's own call.
            unsafe { hooked::recvfrom(fd, b as *mut _, c, d as c_int, e as *mut _, f as *mut _) }
        }
        libc::SYS_sendto => {
            // SAFETY: the program's own call.
            unsafe { hooked::sendto(fd, b as *const _, c, d as c_int, e as *const _, f as u32) }
        }
        // SAFETY: the program's own call.
        libc::SYS_recvmsg => unsafe { hooked::recvmsg(fd, b as *mut _, c as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_sendmsg => unsafe { hooked::sendmsg(fd, b as *const _, c as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_sendfile => unsafe { hooked::sendfile(fd, b as c_int, c as *mut _, d) },
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
        libc::SYS_connect => unsafe { hooked::connect(fd, b as *const _, c as u32) },
        // SAFETY: the program's own call.
        libc::SYS_bind => unsafe { hooked::bind(fd, b as *const _, c as u32) },
        // SAFETY: the program's own call.
        libc::SYS_listen => unsafe { hooked::listen(fd, b as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_accept => unsafe { hooked::accept(fd, b as *mut _, c as *mut _) },
        libc::SYS_accept4 => {
            // SAFETY: the program's own call.
            unsafe { hooked::accept4(fd, b as *mut _, c as *mut _, d as c_int) }
        }
        // SAFETY: the program's own call.
        libc::SYS_shutdown => unsafe { hooked::shutdown(fd, b as c_int) },
        // SAFETY: the program's own call.
        libc::SYS_getsockname => unsafe { hooked::getsockname(fd, b as *mut _, c as *mut _) },
        // SAFETY: the program's own call.
        libc::SYS_getpeername => unsafe { hooked::getpeername(fd, b as *mut _, c as *mut _) },
        libc::SYS_getsockopt => {
            // SAFETY: the program's own call.
            unsafe { hooked::getsockopt(fd, b as c_int, c as c_int, d as *mut _, e as *mut _) }
        }
        libc::SYS_setsockopt => {
            // SAFETY: the program's own call.
            unsafe { hooked::setsockopt(fd, b as c_int, c as c_int, d as *const _, e as u32) }
        }
        // SAFETY: the program's own call.
        libc::SYS_dup => unsafe { hooked::dup(fd) },
        // SAFETY: the program's own call.
        libc::SYS_fcntl => unsafe { hooked::fcntl(fd, b as c_int, c) },
        // SAFETY: the program's own call.
        libc::SYS_ioctl => unsafe { hooked::ioctl(fd, b as u64, c as *mut _) },
        libc::SYS_epoll_ctl => {
            // SAFETY: the program's own call.
            unsafe { hooked::epoll_ctl(fd, b as c_int, c as c_int, d as *mut _) }
        }
        libc::SYS_epoll_pwait => {
            // SAFETY: the program's own call; the kernel's set is the first word of libc's.
            unsafe { hooked::epoll_pwait(fd, b as *mut _, c as c_int, d as c_int, e as *const _) }
        }
        libc::SYS_epoll_pwait2 => {
            // SAFETY: the program's own call; the kernel's set is the first word of libc's.
            unsafe {
                hooked::epoll_pwait2(fd, b as *mut _, c as c_int, d as *const _, e as *const _)
            }
        }
        _ => return None,
    };
    Some(result.into())
}
