//! Bytes and messages. Control messages are Linux's, and FreeBSD's IP_RECVDSTADDR for sockets that asked for it.

pub mod abi;

use std::io::{IoSlice, IoSliceMut};

use slipstack_posix::{Outcome, Process, Received};

/// `recvmsg`.
fn recvmsg(
    process: &Process,
    fd: i32,
    bufs: &mut [IoSliceMut<'_>],
    control: &mut [u8],
    flags: i32,
) -> Outcome<Received> {
    process.recvmsg(fd, bufs, control, flags)
}

/// `sendmsg`.
fn sendmsg(
    process: &Process,
    fd: i32,
    bufs: &[IoSlice<'_>],
    (to, control): (Option<&[u8]>, &[u8]),
    flags: i32,
) -> Outcome<usize> {
    process.sendmsg(fd, bufs, to, control, flags)
}
