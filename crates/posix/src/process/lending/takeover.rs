//! Taking over a datagram socket of another process that has closed it or has ended: the port,
//! which the kernel's part keeps, a new part on an engine of this process, and the datagrams that
//! have arrived for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slipstack_channel::{CloseMode, Placement};
use slipstack_mem::Descriptor;

use crate::process::Process;
use crate::process::network::Network;
use crate::ready::bits;
use crate::socket::borrowed::Borrowed;
use crate::socket::borrowed::child_message::{Message, MessageKind};
use crate::socket::borrowed::control::Unlisted;
use crate::socket::bound::Bound;
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::kernel_socket::kernel_name;
use crate::socket::{Dgram, Side};

impl Process {
    /// Takes over a socket that only this process uses, if there is an engine for it.
    #[cold]
    pub(crate) fn bring_datagrams(&self, socket: &Arc<Description>, it: &Borrowed) {
        if self.living_attachment().is_none() && !it.turns.are_many() {
            return;
        }
        let Some(attachment) = self.attached_quietly() else {
            return;
        };
        // Without a ticker, no thread would drive the engine while the program is away.
        if attachment.driver.placement() == Placement::InProcess && !attachment.has_ticker() {
            return;
        }
        self.learn_of_borrowed(socket);
        let Some(own) = it.take_own() else { return };
        *own.remote.lock() = it.remote();
        if self.realize_dgram(socket, &own).is_err() {
            return it.keep_own(own);
        }
        let message = Message {
            kind: MessageKind::Want,
            id: it.id,
            token: self.ids.next_token(),
            amount: 0,
        };
        let control = it.control();
        match control.and_then(|control| control.ask_for(message, &Unlisted)) {
            Some(_) => self.settle_datagrams(socket, it, own),
            None => {
                if let Some((attachment, sock)) = own.stack().take() {
                    attachment.close(sock, CloseMode::Orderly);
                    attachment.commands();
                }
            }
        }
    }

    /// Goes on with a socket of another process by a part of its own, as one of several that
    /// receive from it. Returns false if there is no engine for it, or it cannot be shared.
    #[cold]
    pub(crate) fn share_datagrams(&self, socket: &Arc<Description>, it: &Borrowed) -> bool {
        let _coming = it.coming.lock();
        if socket.is_brought() || !may_share(socket, it) {
            return socket.is_brought();
        }
        let Some(attachment) = self.attached_quietly() else {
            return false;
        };
        // Without a ticker, no thread would drive the engine while the program is away.
        if attachment.driver.placement() == Placement::InProcess && !attachment.has_ticker() {
            return false;
        }
        self.learn_of_borrowed(socket);
        let Some(own) = it.take_own() else {
            return false;
        };
        if self.realize_dgram(socket, &own).is_err() {
            it.keep_own(own);
            return false;
        }
        // Datagrams that this process has not read at its end go to the other sharers.
        socket.leave_unread();
        it.say(MessageKind::Share, 0);
        if !it.is_taken() {
            it.give_back();
        }
        self.settle_datagrams(socket, it, own);
        true
    }

    /// A call of this thread on a datagram socket of another process begins, or goes on: if the
    /// socket has been used for long, this process has a part of its own from now on.
    pub(super) fn use_datagrams(&self, socket: &Arc<Description>, it: &Borrowed) {
        if self.lending.keeps_out.load(Ordering::Relaxed) || !may_share(socket, it) {
            return;
        }
        if it.turns.is_due(self.kernel.now_ns()) {
            // The owner's queue is read first: datagrams to a group in it cannot move to this part.
            let waiting = self.readiness_elsewhere(socket, it).unwrap_or_default();
            let has_unread = waiting & bits::IN != 0;
            if !socket.is_brought() && (has_unread || !self.share_datagrams(socket, it)) {
                it.turns.note_asked();
            }
        } else if it.turns.is_first_use() {
            self.lending.in_use.note(socket);
        }
    }

    /// The owner has ended. Returns false if the socket cannot go on here.
    #[cold]
    pub(crate) fn inherit_datagrams(&self, socket: &Arc<Description>, it: &Borrowed) -> bool {
        let Some(own) = it.take_own() else {
            return socket.is_brought();
        };
        *own.remote.lock() = it.remote();
        self.settle_datagrams(socket, it, own);
        true
    }

    /// Goes on with a datagram socket of an owner that has ended, before another program gets the
    /// socket: nobody would answer that one.
    pub(super) fn bring_if_left(&self, socket: &Arc<Description>) {
        if let Some(Decided::Foreign(it)) = socket.decided()
            && socket.kind == Kind::Dgram
            && !self.lending.keeps_out.load(Ordering::Relaxed)
            && it.control().is_some_and(|it| it.has_ended(Duration::ZERO))
        {
            self.inherit_datagrams(socket, it);
        }
    }

    fn settle_datagrams(&self, socket: &Arc<Description>, it: &Borrowed, own: Box<Dgram>) {
        if let Some(control) = it.control() {
            own.give_left(control.take_left(it.id));
        }
        match own.side() {
            Side::Both if it.remote().is_some() => own.set_side(Side::Stack),
            _ => {}
        }
        let _bringing = self.lending.bringing.lock();
        self.lending.put_kernel_part(socket, it);
        let options = socket.cold.lock().options.clone();
        socket.error_queue.set(options.error_queue_messages());
        own.apply(&options);
        socket.bring(Decided::Dgram(*own));
        self.on_intent(socket);
        self.realize(socket);
        if let Some(Decided::Dgram(dgram)) = socket.decided() {
            self.report.on_dgram(socket, dgram);
            socket.notify(dgram.readiness() & !bits::OUT);
        }
    }
}

/// Whether several processes may receive from a datagram socket, each by a part of its own: not if
/// it is connected, or one of a SO_REUSEPORT group, which would get another member.
pub(super) fn may_share(socket: &Description, it: &Borrowed) -> bool {
    let is_bound = || socket.cold.lock().bound.is_some();
    it.has_own() && it.remote().is_none() && is_bound() && !socket.shares_port()
}

impl Network {
    /// Records a socket that a new program has under `number`, whose binding its kernel part shows:
    /// it may become this program's own.
    pub(crate) fn own_datagrams(&self, socket: &Description, number: Descriptor) -> Option<Dgram> {
        let addr = self.zoned(kernel_name(number)?);
        let is_wildcard = addr.ip().is_unspecified();
        socket.cold.lock().bound = Some(Bound::of_kernel(addr));
        Some(Dgram::new(match is_wildcard {
            true => Side::Both,
            false => Side::Stack,
        }))
    }
}
