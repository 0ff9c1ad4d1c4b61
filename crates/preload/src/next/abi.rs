//! Links to libc: one for each row of the table, under the first of its names.
#![allow(
    non_upper_case_globals,
    non_camel_case_types,
    reason = "named as the functions they are"
)]

macro_rules! symbols {
    ($(
        $class:ident [$name:ident $(, $alias:ident)*] $arguments:tt -> $result:ty => $body:path;
    )*) => {
        $(link!($name $arguments $result);)*

        /// Looks everything up while the program has one thread.
        pub fn resolve_all() {
            $($name.resolve();)*
        }
    };
}

macro_rules! link {
    ($name:ident ($($arg:ident: $type:ty),*) $result:ty) => {
        pub static $name: Next<unsafe extern "C" fn($($type),*) -> $result> =
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => Next::new(name),
                Err(_) => panic!("a symbol has no inner zero"),
            };
    };
}

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};

use libc::{
    FILE, addrinfo, epoll_event, fd_set, ifaddrs, iovec, mmsghdr, mode_t, msghdr, nfds_t, off64_t,
    pid_t, pollfd, posix_spawn_file_actions_t, posix_spawnattr_t, pthread_attr_t, pthread_t,
    rlimit, sigset_t, size_t, sockaddr, socklen_t, ssize_t, termios, timespec, timeval, winsize,
};

use super::Next;

/// The structure, without the function of that name.
type stat = libc::stat;

/// `struct __user_cap_header_struct`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CapabilityHeader {
    pub version: u32,
    /// Thread; 0: the calling one.
    pub pid: c_int,
}

include!("../table.rs");
