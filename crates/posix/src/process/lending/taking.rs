//! Taking over a connection that only this process keeps using.
//!
//! A child begins with a pair, which is cheap for connections that end soon. Once it has answered
//! several times, or has used the connection for a while, it asks its parent's steward for the
//! connection (`lending/giving.rs`): from then on its own engine has it. Bytes that are in the pair
//! would be behind those that come with the connection: the program reads them first, and the
//! steward adds none meanwhile ([`Borrowed::hold`]).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slipstack_channel::{CloseMode, Placement, SockId, Transport};
use slipstack_mem::Descriptor;
use slipstack_mem::thread::own as own_threads;

use crate::attachment::Attachment;
use crate::epoll::{remove_kernel_part, sets_of};
use crate::lending::lender::Lender;
use crate::lending::post::Charge;
use crate::lending::pump::{Origin, Pump, has_hung_up};
use crate::process::Process;
use crate::process::lending::owner::lend;
use crate::socket::Travelling;
use crate::socket::borrowed::Borrowed;
use crate::socket::borrowed::child_message::{Message, MessageKind};
use crate::socket::description::{Decided, Description};
use crate::socket::kernel_socket::replace;
use crate::socket::options::apply_stream_options;
use crate::socket::options::set_recorded_options;

/// Time that a thread of ours may take until it is known as such.
const THREAD_START: Duration = Duration::from_millis(1);
/// Looks whether threads of this process have left the end of a pair, and their distance.
const LOOKS: u32 = 40;
const LOOK_PAUSE: Duration = Duration::from_micros(250);

impl Process {
    /// Takes over a long-lived connection, if it is available. `patience`: time for which its data
    /// may be in transit.
    #[cold]
    pub(super) fn take_over(&self, socket: &Arc<Description>, it: &Borrowed, patience: Duration) {
        if self.lending.keeps_out.load(Ordering::Relaxed) {
            it.turns.never_ask();
            return it.resume();
        }
        let _coming = it.coming.lock();
        if socket.is_brought() {
            return;
        }
        // It is tried again with the next call.
        if self.has_other_callers(socket) || it.is_owner_silent() {
            return it.resume();
        }
        let was_held = it.is_held();
        if !has_unread(socket) {
            it.turns.note_asked();
            it.hold();
            self.ask_for_it(socket, it, patience);
        }
        // Held, it is asked for again when the program has read what has come.
        let is_settled = socket.is_brought() || was_held && has_unread(socket);
        if !is_settled {
            it.resume();
        }
    }

    /// Whether another thread is in a call on the pair.
    pub(super) fn has_other_callers(&self, socket: &Description) -> bool {
        let thread = self.kernel.thread();
        self.lending.callers.has_others(thread, socket.id)
    }

    fn ask_for_it(&self, socket: &Arc<Description>, it: &Borrowed, patience: Duration) {
        // Without a ticker, no thread would drive the engine while the program is away.
        let attachment = self.attached_quietly();
        let in_process = |it: &Attachment| it.driver.placement() == Placement::InProcess;
        if attachment.is_some_and(|it| in_process(&it) && !it.has_ticker()) {
            return it.turns.never_ask();
        }
        self.come_as(socket, |here| self.take_over_as(socket, it, here, patience));
    }

    /// Opens a socket for a connection that `take` brings there. Returns `None` if it does not.
    pub(super) fn come_as(
        &self,
        socket: &Arc<Description>,
        take: impl FnOnce((&Arc<Attachment>, SockId)) -> Option<()>,
    ) -> Option<()> {
        let attachment = self.attached_quietly()?;
        let sock = attachment.open(Transport::Tcp).ok()?;
        attachment.name(sock, socket);
        let taken = take((&attachment, sock));
        if taken.is_none() {
            attachment.close(sock, CloseMode::Abort);
            attachment.commands();
        }
        taken
    }

    fn take_over_as(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        (attachment, sock): (&Arc<Attachment>, SockId),
        patience: Duration,
    ) -> Option<()> {
        let control = it.control()?;
        self.learn_options(socket);
        if it.lacks_options() {
            // The owner is slow. A later call takes the connection over, with its options.
            return None;
        }
        let message = Message {
            kind: MessageKind::Want,
            id: it.id,
            token: self.ids.next_token(),
            amount: patience.as_millis() as u64,
        };
        let Some((connection, pair)) = control.ask_for(message, &self.lending) else {
            // The steward may have been late.
            it.say(MessageKind::Leave, 0);
            return None;
        };
        let travelling = Travelling::from_bytes(&connection).filter(|_| !has_unread(socket));
        let Some(stream) = travelling.and_then(|it| it.arrive(attachment, sock)) else {
            it.say(MessageKind::Leave, 0);
            pair.into_iter()
                .for_each(|it| self.lending.close_listed(it));
            return None;
        };
        apply_stream_options(socket, &stream);
        let _bringing = self.lending.bringing.lock();
        socket.bring(Decided::Stream(stream));
        it.say(MessageKind::Have, attachment.slot().map_or(0, u64::from));
        self.settle_brought(socket);
        self.lending.drop_way(it);
        self.serve_others(socket, it, pair);
        Some(())
    }

    /// Others may have the other end of the pair still that this process has had: in a message
    /// which is on its way, or without having said so. They go on as they would with the former
    /// owner, and what one has written that has ended is sent.
    fn serve_others(&self, socket: &Arc<Description>, it: &Borrowed, pair: Option<OwnedFd>) {
        let is_used = |pair: &OwnedFd| {
            // A thread of this process that waits has been told to look again.
            let looks = if it.turns.has_several_users() {
                LOOKS
            } else {
                0
            };
            for _ in 0..looks {
                if has_hung_up(pair) {
                    break;
                }
                std::thread::sleep(LOOK_PAUSE);
            }
            !has_hung_up(pair) || holds_bytes(pair)
        };
        let Some(pair) = pair else { return };
        let number = is_used(&pair).then(|| self.steward_number(socket));
        match self.this.get().zip(number.flatten()) {
            Some((this, number)) => {
                lend(socket);
                self.lending.post.note_pump();
                let pump = Pump::new(Arc::clone(socket), number, pair, Origin::UNHEARD);
                this.charge(Charge::Pump(Box::new(pump)));
            }
            None => self.lending.close_listed(pair),
        }
    }

    /// The pair is no more: the socket is one of the stack's.
    pub(super) fn settle_brought(&self, socket: &Arc<Description>) {
        for (set, item) in sets_of(socket) {
            remove_kernel_part(&set, item);
        }
        let numbers = socket.cold.lock().numbers.clone();
        if let Ok(anchor) = self.numbers.anchor() {
            for number in numbers.into_iter().filter_map(Descriptor::new) {
                let _ = replace(number, anchor);
            }
        }
        socket.has_kernel.store(false, Ordering::Release);
        if let Some(Decided::Stream(stream)) = socket.decided() {
            set_recorded_options(socket, stream);
            self.report.on_stream(socket, stream, stream.remote().ok());
            socket.notify(stream.readiness());
        }
    }

    /// Whether connections of killed owners do not come here: this process may not drive an engine,
    /// or a kqueue reports the end of their pairs.
    pub(super) fn misses_left(&self) -> bool {
        self.lending.keeps_out.load(Ordering::Relaxed) || self.kqueues.is_any()
    }
}

/// Whether the program has threads beside the calling one. A thread of ours that has been started
/// a moment ago may not be known as such yet: it is looked `looks` times.
pub(super) fn has_other_threads(looks: u32) -> bool {
    let are_there = || {
        let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
            return true;
        };
        let ids = tasks
            .flatten()
            .filter_map(|task| task.file_name().to_str()?.parse::<u32>().ok());
        ids.filter(|id| own_threads().all(|own| own != *id)).count() > 1
    };
    (0..looks).all(|look| {
        if look > 0 {
            std::thread::sleep(THREAD_START);
        }
        are_there()
    })
}

/// Returns whether the steward has passed on bytes that the program has not read.
fn has_unread(socket: &Description) -> bool {
    let number = socket.kernel_number();
    number.is_none_or(|number| holds_bytes(number.as_fd()))
}

/// Returns whether bytes are to be read, for all that is known.
fn holds_bytes(socket: impl AsFd) -> bool {
    !matches!(rustix::io::ioctl_fionread(socket), Ok(0))
}
