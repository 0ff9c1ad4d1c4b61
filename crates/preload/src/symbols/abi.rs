//! The exported functions: one for each name of each row of the table.
//!
//! A call that is not for us costs one atomic load and a jump: no lock, no allocation, no
//! thread-local storage.

/// One exported function of the given class.
macro_rules! hook {
    // The first argument is a descriptor; the body answers when it is ours.
    (
        descriptor $next:ident $name:ident
        ($fd:ident: $fd_type:ty $(, $arg:ident: $type:ty)*) $result:ty, $body:path
    ) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($fd: $fd_type $(, $arg: $type)*) -> $result {
            if !crate::call::is_ours($fd) || crate::call::is_from_us() {
                // SAFETY: the program's own call.
                return unsafe { (next::$next.get())($fd $(, $arg)*) };
            }
            // SAFETY: the program's own call.
            unsafe { $body($fd $(, $arg)*) }
        }
    };
    // The result is a new descriptor of the kernel's.
    (creates $next:ident $name:ident ($($arg:ident: $type:ty),*) $result:ty, $body:path) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            // SAFETY: the program's own call.
            let fd = unsafe { (next::$next.get())($($arg),*) };
            $body(fd);
            fd
        }
    };
    // The body answers, unless the call comes from our own code.
    (whole $next:ident $name:ident ($($arg:ident: $type:ty),*) $result:ty, $body:path) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            if crate::call::is_from_us() {
                // SAFETY: our own call.
                unsafe { (next::$next.get())($($arg),*) }
            } else {
                // SAFETY: the program's own call.
                unsafe { $body($($arg),*) }
            }
        }
    };
    // The exported function is written in assembly, as C passes it a list of arguments.
    (list $next:ident $name:ident ($($arg:ident: $type:ty),*) $result:ty, $body:path) => {};
}

macro_rules! symbols {
    ($(
        $class:ident [$first:ident $(, $alias:ident)*] $arguments:tt -> $result:ty => $body:path;
    )*) => {
        /// The functions that programs get to instead of libc's.
        #[allow(non_snake_case, clippy::missing_safety_doc, reason = "each is as in C")]
        pub mod exported {
            use super::*;
            $(hook!($class $first $first $arguments $result, $body);
              $(hook!($class $first $alias $arguments $result, $body);)*)*
        }
    };
}

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use libc::{
    FILE, addrinfo, epoll_event, fd_set, ifaddrs, iovec, mmsghdr, mode_t, msghdr, nfds_t, off64_t,
    pid_t, pollfd, posix_spawn_file_actions_t, posix_spawnattr_t, pthread_attr_t, pthread_t,
    rlimit, sigset_t, size_t, sockaddr, socklen_t, ssize_t, stat, termios, timespec, timeval,
    winsize,
};

use crate::next::{self, CapabilityHeader};
use crate::{
    cancel, cores, descriptors, exec, interfaces, io, life, messages, privileges, readiness,
    signals, sockets, stdio, syscall, terminals,
};

include!("../table.rs");
