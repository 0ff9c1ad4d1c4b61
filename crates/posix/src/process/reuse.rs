//! Sockets that become usable again: after a connect that failed, a disconnect, or a listener's
//! end.

use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::net::sockopt;
use slipstack_channel::CloseMode;
use slipstack_mem::Descriptor;

use crate::addr::any;
use crate::epoll::{Set, Target, add_kernel_part};
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::table::{Entry, Table};
use crate::ready::{Awaited, Watch, bits};
use crate::socket::Stream;
use crate::socket::bound::Bound;
use crate::socket::description::{Decided, Description};
use crate::socket::kernel_socket::kernel_name;

impl Process {
    /// Returns the socket behind a number, for a call that decides its placement: a socket whose
    /// attempt has failed may be placed again.
    pub(crate) fn usable_socket_of(&self, fd: i32) -> Outcome<Arc<Description>> {
        let socket = self.table.socket_of(fd)?;
        let Some(Decided::Stream(stream)) = socket.decided() else {
            return Ok(socket);
        };
        if !stream.is_failed() || socket.lent.is_lent() {
            return Ok(socket);
        }
        let (attachment, sock) = stream.attachment_and_sock();
        attachment.close(sock, CloseMode::Abort);
        if !stream.is_refused() {
            give_port_back(&socket, None);
        }
        Ok(self.replace_by_fresh(&socket))
    }

    /// Returns the socket behind a number, for a call that binds it. __udp_disconnect(): a datagram
    /// socket that was disconnected has no port, if the program has not asked for one. One with
    /// datagrams that wait keeps its part.
    pub(crate) fn bindable_socket_of(&self, fd: i32) -> Outcome<Arc<Description>> {
        let socket = self.usable_socket_of(fd)?;
        let Some(Decided::Dgram(dgram)) = socket.decided() else {
            return Ok(socket);
        };
        let is_asked_for = socket
            .cold
            .lock()
            .bound
            .is_some_and(|bound| !bound.is_port_chosen);
        let is_in_use = is_asked_for
            || !dgram.has_no_port()
            || dgram.remote.lock().is_some()
            || dgram.readiness() & bits::IN != 0
            || socket.lent.is_lent();
        if is_in_use {
            return Ok(socket);
        }
        if let Some(number) = socket.kernel_number() {
            rustix::net::connect_unspec(number.as_fd())?;
        }
        if let Some((attachment, sock)) = dgram.stack().take() {
            attachment.close(sock, CloseMode::Orderly);
            attachment.commands();
        }
        socket.cold.lock().bound = None;
        Ok(self.replace_by_fresh(&socket))
    }

    /// A listener's end, without that of its socket. The kernel's part is the caller's.
    pub(crate) fn stop_listening(&self, socket: &Arc<Description>) {
        let Some(Decided::Listener(listener)) = socket.decided() else {
            return;
        };
        listener.shut();
        socket.notify(listener.readiness());
        if let Some((attachment, sock)) = listener.stack().take() {
            attachment.close(sock, CloseMode::Orderly);
            attachment.commands();
        }
        self.replace_by_fresh(socket);
    }

    /// Replaces a socket whose use has ended by an undecided one with all its settings. Calls in
    /// progress stay with the old one.
    pub(crate) fn replace_by_fresh(&self, old: &Arc<Description>) -> Arc<Description> {
        let new = Arc::new(Description::like(old, self.ids.next()));
        new.set_inode(self.ids.inode_of(old));
        old.has_ended.store(true, Ordering::Release);
        let numbers = {
            let (mut from, mut to) = (old.cold.lock(), new.cold.lock());
            to.numbers = mem::take(&mut from.numbers);
            to.options = from.options.clone();
            to.memberships = from.memberships.clone();
            to.bound = from.bound;
            (to.binder, to.is_port_shared) = (from.binder, from.is_port_shared);
            to.owner = from.owner;
            new.sigio.take_over(&old.sigio);
            to.numbers.clone()
        };
        for number in numbers {
            let is_it = |socket: Arc<Description>| Arc::ptr_eq(&socket, old);
            if self.table.socket(number).is_some_and(is_it) {
                self.table.put(number, Entry::Socket(Arc::clone(&new)));
            }
        }
        for watch in old.take_watches() {
            move_watch(&new, watch);
        }
        new
    }
}

impl Table {
    /// Gives back this port where a socket has it whose connection has ended. Returns false if
    /// there is none.
    pub(crate) fn give_back_of_ended(&self, port: u16) -> bool {
        let has_it = |socket: &Arc<Description>| {
            let bound = socket.cold.lock().bound;
            bound.is_some_and(|bound| bound.has_port(port))
        };
        let holders = self.sockets().filter(has_it);
        holders
            .filter(|socket| give_port_of_ended_back(socket))
            .count()
            > 0
    }
}

fn move_watch(to: &Arc<Description>, watch: Watch) {
    let Some((set, item)) = Set::of(&watch) else {
        return watch.end();
    };
    set.retarget(item, Target::Socket(Arc::clone(to)));
    to.watch(watch);
    if to.has_kernel() {
        // The kernel's part of the connection had left the set.
        add_kernel_part(&set, item);
    }
    set.look_at(item);
}

/// Gives back the port of a stream socket whose attempt or connection has ended, unless the program
/// has asked for that port. Returns whether it was held until now.
pub(crate) fn give_port_of_ended_back(socket: &Description) -> bool {
    match socket.decided() {
        Some(Decided::Stream(stream)) if stream.has_ended() => {
            give_port_back(socket, stream.local())
        }
        _ => false,
    }
}

/// Gives back the port that the program has not asked for, as tcp_set_state() does for a closed
/// socket without SOCK_BINDPORT_LOCK; `local` is that of the connection. The kernel's part has been
/// closed all the time: it becomes a listener for a moment, whose end is such a change of state.
fn give_port_back(socket: &Description, local: Option<SocketAddr>) -> bool {
    // Other threads, and a fork, find the port either bound or given back.
    let mut cold = socket.cold.lock();
    let number = cold.numbers.first().filter(|_| socket.has_kernel());
    let number = number.and_then(|number| Descriptor::new(*number));
    // Another process that has the socket too may listen with it.
    let is_busy = |number: &Descriptor| sockopt::socket_acceptconn(number.as_fd()) != Ok(false);
    if number.as_ref().is_some_and(is_busy) {
        return false;
    }
    let is_given = match &mut cold.bound {
        Some(bound) => bound.give_port_back(local),
        None => {
            cold.bound = local.map(|local| Bound::of_past(any(socket.family), local.port()));
            return false;
        }
    };
    if is_given
        && let Some(number) = number
        && rustix::net::listen(number.as_fd(), 0).is_ok()
    {
        let _ = rustix::net::connect_unspec(number.as_fd());
    }
    is_given
}

/// Learns that another process that has the socket too has given its port back: then the kernel's
/// part listens at another one. Returns where the socket is bound.
pub(crate) fn learn_of_port(socket: &Description) -> Option<Bound> {
    let name = socket.kernel_number().and_then(kernel_name);
    let mut cold = socket.cold.lock();
    if let (Some(bound), Some(name)) = (&mut cold.bound, name)
        && name.port() != bound.addr.port()
    {
        bound.give_port_back(None);
    }
    cold.bound
}

/// __inet_stream_connect(): a call that returns the failure of an attempt ends it as
/// connect(AF_UNSPEC) does.
pub(crate) fn disconnect_if_failed(socket: &Description, outcome: &Outcome<()>) {
    let goes_on = [Errno::EINPROGRESS, Errno::EALREADY];
    if let Err(Divert::Errno(error)) = outcome
        && !goes_on.contains(error)
        && let Some(Decided::Stream(stream)) = socket.decided()
        && stream.is_failed()
        && !stream.is_refused()
    {
        disconnect_stream(socket, stream);
    }
}

/// connect(AF_UNSPEC) of a connection or an attempt.
pub(crate) fn disconnect_stream(socket: &Description, stream: &Stream) {
    let local = stream.local();
    stream.disconnect();
    give_port_back(socket, local);
    socket.notify(stream.readiness());
}
