//! Pieces of bytes for one side of a pump.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::SendFlags;

use crate::socket::{Push, Stream, StreamError};

/// `None`: it takes no more. `is_reset` is set if that is an error, which is taken here.
pub(super) fn give_peer(
    stream: &Stream,
    bytes: &[u8],
    takes: &mut bool,
    is_reset: &mut bool,
) -> Option<usize> {
    let mut send = |bytes: &[u8]| match stream.enqueue(&[IoSlice::new(bytes)], Push::OfOther) {
        Ok(count) => Some(count),
        Err(StreamError::Wait) => Some(0),
        Err(StreamError::Pipe) => None,
        Err(StreamError::Errno(_)) => {
            *is_reset = true;
            None
        }
    };
    if bytes.is_empty() {
        return Some(0);
    }
    if stream.has_error() {
        *is_reset = true;
        return None;
    }
    let mut sent = send(bytes)?;
    // Another thread may have handed out the event of new room before any thread waited for it.
    while sent < bytes.len() && stream.has_room_again() {
        match send(&bytes[sent..])? {
            0 => break,
            count => sent += count,
        }
    }
    *takes = sent == bytes.len();
    Some(sent)
}

/// `None`: it takes no more.
pub(super) fn give_child(child: &OwnedFd, bytes: &[u8], takes: &mut bool) -> Option<usize> {
    if bytes.is_empty() {
        return Some(0);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = match retry_on_intr(|| rustix::net::send(child, bytes, flags)) {
        Ok(count) => count,
        Err(Errno::AGAIN) => 0,
        Err(_) => return None,
    };
    *takes = sent == bytes.len();
    Some(sent)
}
