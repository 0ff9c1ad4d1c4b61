//! Members of a set that are on another engine than its own, because one thread accepted them and
//! another one serves them. They move once as such, as soon as all sent data is acknowledged.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};

use slipstack_channel::{CloseMode, SockId, Transport};

use crate::attachment::Attachment;
use crate::epoll::Set;
use crate::process::engines::Engines;
use crate::socket::Stream;
use crate::socket::description::{Decided, Description};

/// The most remote members of one set that are moved; further ones stay on their engine.
const REMOTE_MEMBERS_MAX: usize = 1024;

impl Set {
    fn add_remote_member(&self, socket: Weak<Description>) {
        let mut inner = self.inner.lock();
        if inner.remote_members.len() < REMOTE_MEMBERS_MAX {
            inner.remote_members.push(socket);
            self.has_remote_members.store(true, Ordering::Release);
        }
    }

    fn take_remote_members(&self) -> Vec<Weak<Description>> {
        let mut inner = self.inner.lock();
        self.has_remote_members.store(false, Ordering::Relaxed);
        std::mem::take(&mut inner.remote_members)
    }
}

impl Engines {
    /// A socket has become a member of a set.
    #[inline]
    pub(crate) fn note_member(&self, set: &Set, socket: &Arc<Description>) {
        let is_unsettled = set.home.is_unsettled();
        if !is_unsettled && !self.homes.is_any() {
            return;
        }
        match socket.decided() {
            Some(Decided::Stream(stream)) if stream.may_move() => {
                let home = self.home_of(set);
                if home.is_none_or(|home| !Arc::ptr_eq(stream.attachment(), &home)) {
                    set.add_remote_member(Arc::downgrade(socket));
                    // Moved now, because the thread that waits on the set may be asleep, and may
                    // serve the socket before it waits again.
                    self.move_remote_members(set);
                }
            }
            _ => {}
        }
        if is_unsettled {
            set.look_soon();
        }
    }

    /// Moves the remote members of a set before a wait on it.
    #[inline]
    pub(crate) fn move_remote_members(&self, set: &Set) {
        if set.has_remote_members.load(Ordering::Acquire) {
            self.move_all(set);
        }
    }

    #[cold]
    fn move_all(&self, set: &Set) {
        if set.home.is_unsettled() {
            return;
        }
        let remote_members = set.take_remote_members();
        if !self.moves_pay() {
            return self.let_members_stay(set);
        }
        let Some(home) = self.home_of(set).filter(|_| self.homes.is_any()) else {
            return;
        };
        for member in remote_members {
            if let Some(socket) = member.upgrade()
                && self.move_member(&socket, &home)
            {
                set.add_remote_member(member);
            }
        }
    }

    /// As [`move_connection`]; the engines' users are counted where it goes.
    fn move_member(&self, socket: &Arc<Description>, home: &Arc<Attachment>) -> bool {
        let counted = match socket.decided() {
            Some(Decided::Stream(stream)) if stream.is_counted() => {
                Some((stream, Arc::clone(stream.attachment())))
            }
            _ => None,
        };
        let stays = move_connection(socket, home);
        if let Some((stream, before)) = counted
            && !Arc::ptr_eq(stream.attachment(), &before)
        {
            self.homes.enter(stream.attachment());
            self.homes.exit(&before);
        }
        stays
    }

    /// Connections end soon: those of a set without anything of its own are served where they are.
    fn let_members_stay(&self, set: &Set) {
        let Some(home) = self.home_of(set) else {
            return;
        };
        let is_at_home = |socket: &Arc<Description>| {
            socket
                .attachment()
                .is_some_and(|attachment| Arc::ptr_eq(&attachment, &home))
        };
        if !Arc::ptr_eq(&home.station, &self.station) && !set.sockets().iter().any(is_at_home) {
            self.homes.give_up(set, self.kernel.thread());
        }
    }
}

/// Moves a connection to the engine of the threads that wait for it. Returns whether it stays for
/// now: another attempt may move it.
pub(super) fn move_connection(socket: &Arc<Description>, home: &Arc<Attachment>) -> bool {
    match socket.decided() {
        Some(Decided::Stream(stream)) if stream.may_move() => move_to(socket, stream, home),
        _ => false,
    }
}

/// Moves a connection, which may have moved before.
pub(super) fn move_to(socket: &Arc<Description>, stream: &Stream, home: &Arc<Attachment>) -> bool {
    let (from, old) = stream.attachment_and_sock();
    if Arc::ptr_eq(from, home) {
        return false;
    }
    let has_ended = socket.has_ended.load(Ordering::Acquire);
    // Asked after the place was read: if another thread moves it since, nothing is carried.
    if has_ended || socket.lent.is_lent() || !stream.has_moves_left() {
        return false;
    }
    if !socket.may_end() || stream.queued() > 0 {
        return true;
    }
    if !stream.tries_to_move() {
        return false;
    }
    let Ok(new) = home.open(Transport::Tcp) else {
        return false;
    };
    home.name(new, socket);
    let from = Arc::clone(from);
    if !move_stream(stream, (&from, old), (home, new)) {
        home.close(new, CloseMode::Abort);
        return true;
    }
    from.close(old, CloseMode::Abort);
    fence(Ordering::SeqCst);
    if socket.has_ended.load(Ordering::SeqCst) {
        // Another thread has ended it where it was.
        home.close(new, CloseMode::Orderly);
    } else if stream.is_failed() {
        home.close(new, CloseMode::Abort);
    } else {
        stream.repeat_end();
    }
    home.commands();
    socket.notify(stream.readiness_after_move());
    false
}

fn move_stream(
    stream: &Stream,
    (from, old): (&Arc<Attachment>, SockId),
    (home, new): (&Arc<Attachment>, SockId),
) -> bool {
    let Some(frozen) = from.program.freeze(old) else {
        return false;
    };
    if !from.carry_to(old, home, new) {
        return false;
    }
    stream.set_moved(Arc::clone(home), new);
    frozen.leave();
    true
}
