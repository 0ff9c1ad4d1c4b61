//! A process that has ended leaves what it lends to a helper.
//!
//! On the kernel a connection lives as long as anybody has it, and its maker's end is seen at once.
//! So a process whose connections others may still use makes a helper as it ends: a child with an
//! engine of its own, to which the connections go, and which goes on with the pairs and the control
//! sockets where the steward has left them. Where a connection cannot move in time or there is no
//! engine the process stays itself (see [`super::lingering`]).
//!
//! A process that is about to become another program (`exec`) ends in the same way: it lends the
//! connections that the new program is to have to itself, and their other users notice nothing.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal, kill_process};
use slipstack_channel::{CloseMode, Transport};
use slipstack_mem::Descriptor;
use slipstack_mem::thread::start_no_more;

use crate::attachment::Attachment;
use crate::epoll::sets_of;
use crate::lending::child::{Packed, lend_to_child};
use crate::lending::fork::Fork;
use crate::lending::giving::stream_of;
use crate::lending::lender::Lender;
use crate::lending::post::{Charge, Inline};
use crate::lending::pump::{Pump, ROOM};
use crate::lending::steward::Steward;
use crate::process::Process;
use crate::process::lending::helper::{MOVE_PAUSE, MOVE_TIME_MAX};
use crate::process::lending::owner::lend;
use crate::process::lending::starting::in_place_of;
use crate::socket::borrowed::child_message::control_pair;
use crate::socket::borrowed::control::Control;
use crate::socket::borrowed::{Borrowed, Names, ReadRequest};
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::options::apply_stream_options;
use crate::socket::options::set_recorded_options;
use crate::socket::{Stream, Travelling};

/// Time that a helper may take for its engine.
const HELPER_TIME_MAX: Duration = Duration::from_secs(5);

/// The state in which a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// No thread of the program's but the calling one is left, and it is in no call of libc.
    Alone,
    /// Other threads go on until the process has ended, or a signal has interrupted anything.
    AtOnce,
}

/// Connections on their way to the helper of a process that has ended.
#[derive(Debug)]
pub struct EndHandover {
    end: End,
    packed: Packed,
    /// The connections, with the parts from which the helper makes them.
    carried: Vec<(Arc<Description>, Travelling)>,
    /// The helper names the slot of its engine at its end once it has them.
    programs: OwnedFd,
    helpers: OwnedFd,
}

impl Process {
    /// Called when the program has ended and others may use connections of its. `None`: there is
    /// nothing that a helper could have. Otherwise a fork, [`Process::succeed`] in the child and
    /// [`Process::end_succession`] here must follow.
    pub fn prepare_succession(&'static self, end: End) -> Option<EndHandover> {
        self.lending.post.await_steward();
        if end == End::Alone {
            self.close_sockets(0, u32::MAX);
        }
        let mut packed = self.lending.post.pack()?;
        let pair = control_pair().ok();
        let carried = match &pair {
            Some(_) => self.carry_all_out(&mut packed, end),
            None => Vec::new(),
        };
        let Some((programs, helpers)) = pair.filter(|_| !carried.is_empty()) else {
            self.go_on_with(packed);
            return None;
        };
        // The helper keeps them.
        ends_of(&packed).for_each(|number| self.lending.forget(number));
        Some(EndHandover {
            end,
            packed,
            carried,
            programs,
            helpers,
        })
    }

    /// Called before the program is replaced. As [`Process::prepare_succession`], also for
    /// connections that the new program is to have.
    pub fn prepare_exec(&'static self) -> Option<EndHandover> {
        self.living_attachment()?;
        // A child that shares this memory (CLONE_VM) leaves nothing of its parent's.
        if !self.ids.are_of_this_process() {
            return None;
        }
        self.lend_to_new_program();
        match self.has_borrowers() {
            true => self.prepare_succession(End::AtOnce),
            false => None,
        }
    }

    /// Makes this process a user of its own connections, like a child that it has forked, as which
    /// the new program goes on.
    fn lend_to_new_program(&'static self) {
        let sockets = self.inherited_connections().into_iter();
        let sockets = sockets.filter_map(|number| self.table.socket(number));
        let is_own = |it: &Arc<Description>| stream_of(it).is_some_and(Stream::is_connection);
        let sockets: Vec<Arc<Description>> = sockets.filter(is_own).collect();
        let borrowed = self.borrow_all_own(&sockets);
        borrowed
            .iter()
            .for_each(|(old, new)| self.keep_in_sets(old, new));
    }

    /// Lends connections of this process to itself. Returns them with what has taken their places.
    fn borrow_all_own(
        &'static self,
        sockets: &[Arc<Description>],
    ) -> Vec<(Arc<Description>, Arc<Description>)> {
        let _bringing = self.lending.bringing.lock();
        let Some(Fork {
            control: Some((stewards, own)),
            shared,
            names,
            ..
        }) = self.prepare_child(sockets.iter())
        else {
            return Vec::new();
        };
        self.lending.note(stewards.as_raw_fd());
        let control = Arc::new(Control::new(own));
        self.lending.controls.lock().push(Arc::clone(&control));
        let named = shared.iter().zip(&names);
        let borrowed = named
            .map(|(old, names)| (Arc::clone(old), self.borrow_own(old, names, &control)))
            .collect();
        self.charge(Charge::child(stewards, shared));
        borrowed
    }

    /// A connection of the steward's takes the place of one of this process's in sets that the new
    /// program may have.
    fn keep_in_sets(&self, old: &Arc<Description>, new: &Arc<Description>) {
        let sets = sets_of(old);
        if let Some(Decided::Foreign(it)) = new.decided()
            && !sets.is_empty()
        {
            self.take_borrowed(new, it, ReadRequest::All);
            self.lending.watch_instead(sets, old, new);
        }
    }

    /// Puts a connection that the steward lends under all numbers of one of this process's, and
    /// returns it.
    fn borrow_own(
        &self,
        old: &Arc<Description>,
        names: &Names,
        control: &Arc<Control>,
    ) -> Arc<Description> {
        let it = Borrowed::new(old.id, Some(names), Some(Arc::clone(control)), None);
        let (new, numbers) = in_place_of(old, self.ids.next(), names.inode, it);
        for number in numbers.into_iter().filter_map(Descriptor::new) {
            if !self.lending.is_stewards(number.number()) {
                self.install(number, &new);
            }
        }
        new
    }

    /// Takes connections out that children may use, as far as they can go: none if this process
    /// stays for children that do not use them yet, which speak to one process only.
    fn carry_all_out(&self, packed: &mut Packed, end: End) -> Vec<(Arc<Description>, Travelling)> {
        let mut left = streams_of(packed);
        let mut carried = Vec::new();
        let mut room = vec![0; ROOM];
        let begun = Instant::now();
        while !left.is_empty() && begun.elapsed() < MOVE_TIME_MAX {
            for (_, pump) in &mut packed.pumps {
                let is_there = left.iter().any(|socket| Arc::ptr_eq(socket, pump.socket()));
                if is_there {
                    pump.run(self, &mut room);
                }
            }
            // A connection leaves with what other threads have written until now.
            if end == End::AtOnce {
                left.iter()
                    .filter_map(|it| stream_of(it))
                    .for_each(Stream::seal);
            }
            if let Some(attachment) = self.living_attachment() {
                attachment.turn(self.kernel.now_ns());
            }
            left.retain(|socket| match stream_of(socket).and_then(Stream::depart) {
                Some(travelling) => {
                    carried.push((Arc::clone(socket), travelling));
                    false
                }
                None => true,
            });
            left.retain(|socket| stream_of(socket).is_some_and(Stream::may_depart));
            if !left.is_empty() {
                std::thread::sleep(MOVE_PAUSE);
            }
        }
        if end == End::Alone && left.iter().any(|socket| is_held(packed, socket)) {
            for (socket, travelling) in carried.drain(..) {
                let stream = stream_of(&socket);
                stream.inspect(|it| it.come_back(&travelling));
            }
        }
        carried
    }

    /// Takes the connections in the helper, reports that, and serves their users until there are
    /// none.
    pub fn succeed(&'static self, succession: EndHandover) {
        let EndHandover {
            end,
            packed,
            carried,
            programs,
            helpers,
        } = succession;
        drop(programs);
        send_words(&helpers, &[u64::from(std::process::id())]);
        if end == End::AtOnce {
            // One of the locks of libc may be held for ever.
            start_no_more();
            self.close_sockets(0, u32::MAX);
        }
        self.lending.leave_stewards();
        let Some(attachment) = self.attached_quietly() else {
            return;
        };
        let mut sockets = Vec::new();
        for (old, travelling) in carried {
            sockets.extend(take_in(&attachment, &old, &travelling));
            std::mem::forget(old);
        }
        let packed = self.take_up(packed, &sockets);
        let slot = u64::from(attachment.slot().unwrap_or(0));
        let ids = sockets.iter().map(|socket| socket.id);
        send_words(
            &helpers,
            &std::iter::once(slot).chain(ids).collect::<Vec<_>>(),
        );
        drop(helpers);
        let _ = self.close_others(0, u32::MAX, 0);
        if let Ok(mut steward) = Steward::new(self, &self.lending.post) {
            steward.take_up(packed);
            Box::new(steward).run_here();
        }
    }

    /// Makes the former steward's children and pumps this process's.
    fn take_up(&self, packed: Packed, sockets: &[Arc<Description>]) -> Packed {
        ends_of(&packed).for_each(|number| self.lending.note(number));
        let Packed {
            mut children,
            pumps,
        } = packed;
        let here = |id: u64| sockets.iter().find(|socket| socket.id == id);
        for (_, child) in &mut children {
            for old in std::mem::take(&mut child.held) {
                if let Some(socket) = here(old.id) {
                    lend_to_child(socket);
                    child.held.push(Arc::clone(socket));
                }
                std::mem::forget(old);
            }
        }
        let mut own = Vec::new();
        for (key, mut pump) in pumps {
            let socket = here(pump.socket().id).cloned();
            let number = socket
                .as_ref()
                .and_then(|socket| self.steward_number(socket));
            match (socket, number) {
                (Some(socket), Some(number)) => {
                    lend(&socket);
                    self.lending.post.note_pump();
                    pump.go_on_as(socket, number);
                    own.push((key, pump));
                }
                _ => {
                    pump.ends().for_each(|number| self.lending.forget(number));
                    pump.leave();
                }
            }
        }
        Packed {
            children,
            pumps: own,
        }
    }

    /// Waits until the helper has the connections, of which nothing is left here then. Without it
    /// they are served here as before.
    pub fn end_succession(&'static self, succession: EndHandover, has_helper: bool) {
        let EndHandover {
            end: _,
            packed,
            carried,
            programs,
            helpers,
        } = succession;
        drop(helpers);
        let reply = has_helper
            .then(|| await_helper(&programs, carried.len()))
            .flatten();
        let (slot, ids) = reply.unwrap_or_default();
        for (socket, travelling) in carried {
            let Some(stream) = stream_of(&socket) else {
                continue;
            };
            if !ids.contains(&socket.id) {
                stream.come_back(&travelling);
                continue;
            }
            let (attachment, sock) = stream.attachment_and_sock();
            travelling.has_arrived(attachment, slot);
            socket.has_ended.store(true, Ordering::Release);
            attachment.close(sock, CloseMode::Abort);
            attachment.commands();
        }
        let Packed { children, pumps } = packed;
        let (gone, mut stay): (Vec<_>, Vec<_>) = pumps
            .into_iter()
            .partition(|(_, pump)| ids.contains(&pump.socket().id));
        gone.into_iter().for_each(|(_, pump)| pump.end_here(self));
        // Users of the connections that stay talk to the helper, if there is one.
        let children = match ids.is_empty() {
            true => children,
            false => {
                stay.iter_mut()
                    .for_each(|(_, pump)| pump.read(ReadRequest::All));
                Vec::new()
            }
        };
        let packed = Packed {
            children,
            pumps: stay,
        };
        ends_of(&packed).for_each(|number| self.lending.note(number));
        self.go_on_with(packed);
    }

    /// Continues the packed children and pumps in this process.
    fn go_on_with(&'static self, packed: Packed) {
        let post = &self.lending.post;
        post.stand_in(|| {
            let mut steward = Steward::new(self, post).ok()?;
            steward.take_up(packed);
            Some(Box::new(steward))
        });
    }
}

/// The numbers of control sockets and ends of pairs.
fn ends_of(packed: &Packed) -> impl Iterator<Item = i32> {
    let controls = packed
        .children
        .iter()
        .map(|(_, child)| child.control.as_raw_fd());
    let pairs = packed.pumps.iter().flat_map(|(_, pump)| pump.ends());
    controls.chain(pairs)
}

/// Whether a child may use the connection and has not done so.
fn is_held(packed: &Packed, socket: &Arc<Description>) -> bool {
    let mut held = packed.children.iter().flat_map(|(_, child)| &child.held);
    held.any(|it| Arc::ptr_eq(it, socket))
}

/// The connections that children use or may use.
fn streams_of(packed: &Packed) -> Vec<Arc<Description>> {
    let held = packed.children.iter().flat_map(|(_, child)| &child.held);
    let used = packed.pumps.iter().map(|(_, pump)| Pump::socket(pump));
    let streams = held
        .chain(used)
        .filter(|socket| socket.kind == Kind::Stream);
    let mut all: Vec<Arc<Description>> = streams.cloned().collect();
    all.sort_by_key(|socket| socket.id);
    all.dedup_by_key(|socket| socket.id);
    all
}

fn send_words(helpers: &OwnedFd, words: &[u64]) {
    let message: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let _ = rustix::net::send(helpers, &message, SendFlags::NOSIGNAL);
}

/// Reads at most `max` words of the helper's. `None`: it has ended, or it is late.
fn receive_words(programs: &OwnedFd, max: usize) -> Option<Vec<u64>> {
    let mut message = vec![0; max * 8];
    let recv = || rustix::net::recv(programs, &mut message[..], RecvFlags::empty());
    let (_, len) = retry_on_intr(recv).ok()?;
    let (words, _) = message[..len.min(message.len())].as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    Some(words.collect())
}

/// Returns the slot of the helper's engine and the numbers of the `count` connections that it has
/// at most. `None`: it has ended. One that says nothing for too long is ended.
fn await_helper(programs: &OwnedFd, count: usize) -> Option<(u16, Vec<u64>)> {
    let _ = set_socket_timeout(programs, Timeout::Recv, Some(HELPER_TIME_MAX));
    let helper = *receive_words(programs, 1)?.first()?;
    let Some(mut words) = receive_words(programs, 1 + count).filter(|words| !words.is_empty())
    else {
        let helper = i32::try_from(helper).ok().and_then(Pid::from_raw);
        let _ = helper.map(|helper| kill_process(helper, Signal::KILL));
        return None;
    };
    let slot = u16::try_from(words.remove(0)).ok()?;
    Some((slot, words))
}

/// Takes a connection in, whose description in the former process is `old`. `None`: it has
/// ended meanwhile.
fn take_in(
    attachment: &Arc<Attachment>,
    old: &Description,
    travelling: &Travelling,
) -> Option<Arc<Description>> {
    // Children know it by its number.
    let socket = Arc::new(Description::like(old, old.id));
    // Still held as the fork left it: the child has none of the socket's numbers.
    old.release();
    if let Some(cold) = old.cold.try_lock() {
        socket.cold.lock().options = cold.options.clone();
    }
    let sock = attachment.open(Transport::Tcp).ok()?;
    attachment.name(sock, &socket);
    let Some(stream) = travelling.arrive(attachment, sock) else {
        attachment.close(sock, CloseMode::Abort);
        return None;
    };
    apply_stream_options(&socket, &stream);
    set_recorded_options(&socket, &stream);
    let _ = socket.decided.set(Decided::Stream(stream));
    Some(socket)
}
