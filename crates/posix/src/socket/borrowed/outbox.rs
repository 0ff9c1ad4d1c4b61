//! Messages to the steward of an owner that takes none: it may be stopped, and its control socket
//! is full. They leave in their order when there is room again, before any later message.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::io::retry_on_intr;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use slipstack_mem::{Guard, Lock};

use crate::socket::borrowed::child_message::MessageKind;

/// Tries to take a lock that others hold for moments only, and those after which the thread yields.
const TRIES: u32 = 1000;
const SPINS: u32 = 200;

/// The thing that a message is about, if only the last message about it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// An option of the connection `id`.
    Option { id: u64, level: i32, name: i32 },
    /// A message of the kind about the connection `id`.
    Kind(u64, MessageKind),
}

#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    subject: Option<Subject>,
}

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    kept: VecDeque<Kept>,
    /// A thread sends them when there is room.
    pub(crate) has_sender: bool,
}

impl Outbox {
    /// Sends the messages for which there is room. Returns whether none is kept any more.
    pub(crate) fn flush(&mut self, end: &OwnedFd) -> bool {
        while let Some(first) = self.kept.front() {
            match send_now(end, &[IoSlice::new(&first.bytes)], None) {
                Err(rustix::io::Errno::AGAIN) => return false,
                Ok(()) => {
                    self.kept.pop_front();
                }
                // The owner has ended.
                Err(_) => self.kept.clear(),
            }
        }
        true
    }

    /// Keeps a message, instead of an earlier one about the same subject.
    pub(crate) fn keep(&mut self, bytes: Vec<u8>, subject: Option<Subject>) {
        if subject.is_some() {
            self.kept.retain(|it| it.subject != subject);
        }
        self.kept.push_back(Kept { bytes, subject });
    }
}

/// Sends a message without waiting for room.
pub(crate) fn send_now(
    end: &OwnedFd,
    parts: &[IoSlice<'_>],
    ancillary: Option<&mut SendAncillaryBuffer<'_, '_, '_>>,
) -> rustix::io::Result<()> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut none = SendAncillaryBuffer::default();
    let ancillary = ancillary.unwrap_or(&mut none);
    retry_on_intr(|| rustix::net::sendmsg(end, parts, ancillary, flags)).map(drop)
}

/// Takes a lock that others hold for moments only. `None`: it is held by the call that a signal has
/// interrupted, or by a thread that this process does not have, because it has been forked.
pub(super) fn look<T>(lock: &Lock<T>) -> Option<Guard<'_, T>> {
    for tries in 0..TRIES {
        if let Some(guard) = lock.try_lock() {
            return Some(guard);
        }
        match tries < SPINS {
            true => std::hint::spin_loop(),
            false => std::thread::yield_now(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::borrowed::child_message::control_pair;

    fn option(name: i32) -> Option<Subject> {
        let (id, level) = (1, libc::IPPROTO_TCP);
        Some(Subject::Option { id, level, name })
    }

    fn next(end: &OwnedFd) -> Option<Vec<u8>> {
        let mut room = [0; 100];
        let flags = rustix::net::RecvFlags::DONTWAIT;
        let (len, _) = rustix::net::recv(end, &mut room, flags).ok()?;
        Some(room[..len].to_vec())
    }

    #[test]
    fn kept_messages_leave_in_their_order_and_only_the_last_value_of_an_option_does() {
        let (ours, theirs) = control_pair().unwrap();
        let mut outbox = Outbox::default();
        assert!(outbox.flush(&theirs));
        while send_now(&theirs, &[IoSlice::new(b"before")], None).is_ok() {}
        for (bytes, subject) in [
            (b"one", option(1)),
            (b"two", option(2)),
            (b"end", None),
            (b"new", option(1)),
            (b"end", None),
        ] {
            outbox.keep(bytes.to_vec(), subject);
        }
        assert!(!outbox.flush(&theirs));
        while next(&ours).is_some_and(|bytes| bytes == b"before") {}
        assert!(outbox.flush(&theirs));
        let came: Vec<Vec<u8>> = std::iter::from_fn(|| next(&ours)).collect();
        assert_eq!(came, [b"two", b"end", b"new", b"end"]);
    }

    #[test]
    fn nothing_is_kept_for_an_owner_that_has_ended() {
        let (ours, theirs) = control_pair().unwrap();
        let mut outbox = Outbox::default();
        outbox.keep(b"message".to_vec(), None);
        drop(ours);
        assert!(outbox.flush(&theirs));
    }
}
