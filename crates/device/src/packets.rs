//! Messages with descriptors on a socket between two of our processes.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Descriptors of one packet at most: two of each slot, and a few.
const RIGHTS_MAX: usize = 160;

/// Sends a packet; never blocks.
///
/// # Errors
/// The kernel's refusal, or more descriptors than one packet carries.
pub fn send(to: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RIGHTS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(to, &[IoSlice::new(bytes)], &mut ancillary, flags)?;
    Ok(())
}

/// Takes a packet that waits: its length, 0 at the end of the connection, and its descriptors.
///
/// # Errors
/// The kernel's refusal; no packet waits.
pub fn receive(from: impl AsFd, into: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RIGHTS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(from, &mut [IoSliceMut::new(into)], &mut ancillary, flags)?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights.map(|fd| slipstack_mem::raised(fd).unlisted()));
        }
    }
    Ok((received.bytes, fds))
}
