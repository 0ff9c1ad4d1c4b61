//! A connection that one process alone uses, again and again, goes to it.
//!
//! A child begins with a pair, which costs it nothing when its connection ends soon. Once it has
//! answered several times it asks its parent's steward for the connection: it gets it if nobody
//! else has it and all that was sent has arrived, and asks again later otherwise. From then on its
//! own engine has it. The child says when it has it; until then, and if it ends, the steward has it
//! still.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slipstack_channel::{CloseMode, Placement, SockId, Transport};
use slipstack_mem::Descriptor;
use slipstack_mem::thread::own as own_threads;

use super::Borrowed;
use super::steward::{Given, Steward};
use super::words::{Message, Word, give, refuse};
use crate::description::{Decided, Description, Kind};
use crate::epoll::{remove_kernel_part, sets_of};
use crate::link::Link;
use crate::place::replace;
use crate::process::Process;
use crate::socket::Stream;

/// How long a thread of ours may take until it is known as such.
const THREAD_START: Duration = Duration::from_millis(1);

impl Process {
    /// Takes a connection over that has proved long, if it is to be had.
    #[cold]
    pub(super) fn take_over(&self, socket: &Arc<Description>, it: &Borrowed) {
        if self.is_kept_out() {
            return it.turns.never_ask();
        }
        let Some(link) = self.attached_quietly() else {
            return;
        };
        // Nobody would drive the engine while the program is away.
        if link.driver.placement() == Placement::InProcess && !link.has_ticker() {
            return it.turns.never_ask();
        }
        let Ok(sock) = link.open(Transport::Tcp) else {
            return;
        };
        link.name(sock, socket);
        if self.take_over_as(socket, it, (&link, sock)).is_none() {
            link.close(sock, CloseMode::Abort);
            link.commands();
        }
    }

    fn take_over_as(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        (link, sock): (&Arc<Link>, SockId),
    ) -> Option<()> {
        let control = it.control()?;
        if has_unread(socket) {
            return None;
        }
        let message = Message {
            word: Word::Want,
            id: it.id,
            token: self.next_token(),
            amount: link.slot().map_or(0, u64::from),
        };
        let connection = control.ask_for(message)?;
        if has_unread(socket) || !link.carry_in(sock, &connection) {
            it.say(Word::Leave, 0);
            return None;
        }
        let stream = Stream::accepted(Arc::clone(link), sock);
        self.apply_stream_options(socket, &stream);
        socket.bring(stream);
        it.say(Word::Have, message.amount);
        self.settle_brought(socket);
        Some(())
    }

    /// The pair is no more: the socket is one of the stack's.
    fn settle_brought(&self, socket: &Arc<Description>) {
        for (set, item) in sets_of(socket) {
            remove_kernel_part(&set, item);
        }
        let numbers = socket.cold.lock().numbers.clone();
        if let Ok(anchor) = self.anchor() {
            for number in numbers.into_iter().filter_map(Descriptor::new) {
                let _ = replace(number, anchor);
            }
        }
        socket.has_kernel.store(false, Ordering::Release);
        if let Some(Decided::Stream(stream)) = socket.decided() {
            self.set_all_on_stream(socket, stream);
            self.report.on_stream(socket, stream, stream.remote().ok());
            socket.notify(stream.readiness());
        }
    }

    /// A connection has come from another process: what was set here before is to have its effect.
    fn set_all_on_stream(&self, socket: &Arc<Description>, stream: &Stream) {
        let options = socket.cold.lock().options.clone();
        for set in options.all() {
            if let Some(option) = options.for_stack(set.level, set.name) {
                stream.set_option(option);
            }
        }
        stream.link().commands();
    }

    /// Whether this process may not drive an engine, or another thread of its may be in a call on
    /// the pair.
    fn is_kept_out(&self) -> bool {
        self.lending.keeps_out.load(Ordering::Relaxed)
            || self.has_kqueues.load(Ordering::Relaxed)
            || has_other_threads(1)
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

/// Whether the steward has passed on what the program has not read.
fn has_unread(socket: &Description) -> bool {
    let count = socket
        .kernel_number()
        .and_then(|number| rustix::io::ioctl_fionread(number.as_fd()).ok());
    count != Some(0)
}

impl Steward {
    pub(super) fn on_want(&mut self, key: u64, message: Message) {
        let Some(root) = self.children.get(&key).map(|child| child.root) else {
            return;
        };
        let carried = self.carry_out_for(root, message.id);
        let Some(child) = self.children.get_mut(&key) else {
            return;
        };
        let Some((pump, bytes)) = carried else {
            return refuse(&child.control, message.token);
        };
        let is_sent = give(&child.control, message.token, &bytes);
        let given = Given {
            id: message.id,
            pump,
            bytes,
        };
        match is_sent {
            true => child.given.push(given),
            false => {
                refuse(&child.control, message.token);
                self.come_back(&given);
            }
        }
    }

    /// Takes a connection out if nobody but the child of `root` has it and nothing of it is under
    /// way.
    fn carry_out_for(&mut self, root: u64, id: u64) -> Option<(u64, Vec<u8>)> {
        let is_it = |pump: &super::pump::Pump| pump.is_roots(root) && pump.socket().id == id;
        let (key, pump) = self.pumps.iter_mut().find(|(_, pump)| is_it(pump))?;
        // Bytes that the child has written leave first.
        pump.run(self.lender, &mut self.room);
        let socket = Arc::clone(pump.socket());
        let is_its_own = socket.lent.is_lent_once() && self.lender.is_left_to_steward(&socket);
        if !is_its_own || socket.kind != Kind::Stream || !socket.may_end() || !pump.is_at_rest() {
            return None;
        }
        let (link, sock) = place_of(&socket)?;
        let bytes = link.carry_out(sock)?;
        pump.pause(true);
        Some((*key, bytes))
    }

    fn come_back(&mut self, given: &Given) {
        let Some(pump) = self.pumps.get_mut(&given.pump) else {
            return;
        };
        if let Some((link, sock)) = place_of(pump.socket()) {
            link.carry_in(sock, &given.bytes);
        }
        pump.pause(false);
        pump.on_peer();
        self.ready.push(given.pump);
    }

    /// The child has it: nothing of it is left here.
    pub(super) fn on_have(&mut self, key: u64, message: Message) {
        let Some(given) = self.take_given(key, message.id) else {
            return;
        };
        let Some(socket) = self
            .pumps
            .get(&given.pump)
            .map(|it| Arc::clone(it.socket()))
        else {
            return;
        };
        if let Some((link, sock)) = place_of(&socket) {
            if let Ok(slot) = u16::try_from(message.amount) {
                link.carried(&given.bytes, slot);
            }
            socket.has_ended.store(true, Ordering::Release);
            link.close(sock, CloseMode::Abort);
            link.commands();
        }
        self.end_pump(given.pump);
    }

    /// The child has no use for it now.
    pub(super) fn on_leave(&mut self, key: u64, message: Message) {
        if let Some(given) = self.take_given(key, message.id) {
            self.come_back(&given);
        }
    }

    /// The child has ended before it has said that it has them.
    pub(super) fn take_all_back(&mut self, given: &[Given]) {
        for given in given {
            self.come_back(given);
        }
    }

    fn take_given(&mut self, key: u64, id: u64) -> Option<Given> {
        let child = self.children.get_mut(&key)?;
        let at = child.given.iter().position(|given| given.id == id)?;
        Some(child.given.swap_remove(at))
    }
}

fn place_of(socket: &Description) -> Option<(Arc<Link>, SockId)> {
    let Some(Decided::Stream(stream)) = socket.decided() else {
        return None;
    };
    if !stream.is_whole() {
        return None;
    }
    let (link, sock) = stream.link_and_sock();
    Some((Arc::clone(link), sock))
}
