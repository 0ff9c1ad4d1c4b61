//! The lending process as its steward sees it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::attachment::Attachment;
use crate::lending::users_end::UsersEnd;
use crate::ready::Sleepers;
use crate::socket::borrowed::requests::{Reply, Request};
use crate::socket::description::Description;

/// A process that lends connections. The steward and its pumps know it by this alone.
pub(crate) trait Lender: Sync {
    fn next_id(&self) -> u64;

    fn now_ns(&self) -> u64;

    /// The calling thread.
    fn thread(&self) -> usize;

    /// The threads that wait at the first engine.
    fn sleepers(&self) -> &Sleepers;

    /// The first engine, if there is one and it has not died.
    fn living_attachment(&self) -> Option<Arc<Attachment>>;

    fn turn(&self, attachment: &Attachment);

    /// A descriptor is the steward's: children close it.
    fn note(&self, number: i32);

    fn forget(&self, number: i32);

    /// As [`receive_joining`](crate::socket::borrowed::child_message::receive_joining), and notes a
    /// control socket that comes before a thread can fork.
    fn receive_joining(
        &self,
        end: &OwnedFd,
        room: &mut [u8],
    ) -> rustix::io::Result<(usize, Option<OwnedFd>)>;

    /// Forgets a descriptor and closes it, while no thread forks.
    fn close_noted(&self, end: OwnedFd);

    /// Closes the steward's end of a pair. `resets`: the end that this resets.
    fn close_pair(&self, ours: OwnedFd, resets: Option<UsersEnd>);

    /// Bytes of one connection less are to be moved.
    fn note_pump_ended(&self);

    /// Gives a connection a number of the steward's own, so that it has one whatever the program
    /// closes.
    fn steward_number(&self, socket: &Arc<Description>) -> Option<i32>;

    /// Closes what the program has open that is no socket of the stack. Called by the steward, to
    /// which descriptors may be coming that nobody knows of yet.
    fn close_others(&self);

    fn close_steward_number(&self, number: i32);

    /// Returns true if the program has closed all its own numbers of a connection.
    fn is_left_to_steward(&self, socket: &Description) -> bool;

    /// Handles a child that is done with a connection; if no other process has it, and no thread of
    /// ours is inside a call on it, it ends.
    fn take_back(&self, socket: &Arc<Description>);

    /// As [`Lender::take_back`], of one that it has not used.
    fn take_back_unused(&self, socket: &Arc<Description>);

    /// Another process receives from the datagram socket by a part of its own, too.
    fn share(&self, socket: &Description);

    /// Makes a call of a child on a socket. `data`: bytes to send; received bytes go to `room`, and
    /// their length is returned too.
    fn call(
        &self,
        socket: &Arc<Description>,
        request: &Request<'_>,
        data: &[u8],
        room: &mut [u8],
    ) -> (Reply, usize);
}
