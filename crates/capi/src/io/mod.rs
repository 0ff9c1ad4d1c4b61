//! Bytes and messages. Control messages are Linux's, and FreeBSD's IP_RECVDSTADDR for sockets that
//! asked for it.

pub mod abi;
pub mod control;

use std::io::{IoSlice, IoSliceMut};

use slipstack_posix::{Outcome, Process, Received};

/// Room for the control messages of one datagram.
const CONTROL_MAX: usize = 512;

/// `recvmsg`.
fn recvmsg(
    process: &Process,
    fd: i32,
    bufs: &mut [IoSliceMut<'_>],
    control: &mut [u8],
    flags: i32,
) -> Outcome<Received> {
    if control.is_empty() || !control::is_asking(fd) {
        return process.recvmsg(fd, bufs, control, flags);
    }
    let mut room = [0; CONTROL_MAX];
    let mut received = process.recvmsg(fd, bufs, &mut room, flags)?;
    let messages = control::incoming(&room[..received.control_len]);
    let len = messages.len().min(control.len());
    control[..len].copy_from_slice(&messages[..len]);
    if len < messages.len() {
        received.flags |= libc::MSG_CTRUNC;
    }
    received.control_len = len;
    Ok(received)
}

/// `sendmsg`.
fn sendmsg(
    process: &Process,
    fd: i32,
    bufs: &[IoSlice<'_>],
    (to, control): (Option<&[u8]>, &[u8]),
    flags: i32,
) -> Outcome<usize> {
    let changed = match control.is_empty() || !process.is_alone(fd) {
        true => None,
        false => control::outgoing(control),
    };
    let control = changed.as_deref().unwrap_or(control);
    process.sendmsg(fd, bufs, to, control, flags)
}
