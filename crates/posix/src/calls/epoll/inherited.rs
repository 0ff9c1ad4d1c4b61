//! A parent's connections in an epoll set that a forked child has inherited.
//!
//! An inherited connection is an end of a socket pair (see [`crate::lending`]), about which the
//! parent must not get events: before it becomes a member the child gets a kernel's set of its own.

use std::sync::Arc;

use crate::epoll::{Set, add_kernel_part};
use crate::process::Process;
use crate::socket::borrowed::ReadRequest;
use crate::socket::description::{Decided, Kind};

impl Process {
    /// Connections of the parent's among the members: from now on their ends of pairs are.
    pub(crate) fn borrow_members(&self, set: &Arc<Set>) {
        for (item, socket, events) in set.not_borrowed() {
            let Some(Decided::Foreign(it)) = socket.decided() else {
                continue;
            };
            let is_parted = match socket.kind == Kind::Dgram && socket.has_kernel() {
                // The parent's kernel part of a datagram socket is a member too. Its events come by
                // the pair.
                true => {
                    self.take_borrowed(&socket, it, ReadRequest::None);
                    self.lending.end_sharing(set)
                }
                false => self.lending.part_from_parent(set),
            };
            if is_parted.is_err() {
                return;
            }
            self.take_borrowed(
                &socket,
                it,
                ReadRequest::if_reads(events & libc::EPOLLIN as u32 != 0),
            );
            if it.is_taken() {
                add_kernel_part(set, item);
            }
        }
    }
}
