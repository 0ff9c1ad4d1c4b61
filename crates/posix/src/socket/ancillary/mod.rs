//! Control messages of `sendmsg` and `recvmsg` in Linux's layout
//! (cmsg(3)).

mod requested;
mod sending;
mod writing;

pub(crate) use requested::RequestedControl;
pub(crate) use sending::{Sending, check_stream, parse};
pub(crate) use writing::{Setting, Writer};

/// `struct cmsghdr`: length with header, level, type.
const HEADER_LEN: usize = size_of::<libc::cmsghdr>();

/// SO_TIMESTAMP_NEW and SO_TIMESTAMPNS_NEW (asm-generic/socket.h).
pub(crate) const TIMESTAMP_NEW: i32 = 63;
pub(crate) const TIMESTAMPNS_NEW: i32 = 64;
/// SO_TIMESTAMPING_NEW.
pub(crate) const TIMESTAMPING_NEW: i32 = 65;

/// SO_RCVMARK and SO_RCVPRIORITY (asm-generic/socket.h).
pub(crate) const RCVMARK: i32 = 75;
pub(crate) const RCVPRIORITY: i32 = 82;

/// IP_RECVORIGDSTADDR and IPV6_RECVORIGDSTADDR, whose message has the same type.
pub(crate) const IP_ORIGDSTADDR: i32 = 20;
pub(crate) const IPV6_ORIGDSTADDR: i32 = 74;
