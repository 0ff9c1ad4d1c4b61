//! Sockets that become usable again: after a connect that failed, a disconnect, or a listener's
//! end.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstack_channel::CloseMode;

use crate::epoll::{Set, Target, add_kernel_part};
use crate::outcome::Outcome;
use crate::process::Process;
use crate::process::table::Entry;
use crate::ready::{Awaited, Watch};
use crate::socket::Stream;
use crate::socket::description::{Decided, Description};

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

/// connect(AF_UNSPEC) of a connection or an attempt.
pub(crate) fn disconnect_stream(socket: &Description, stream: &Stream) {
    stream.disconnect();
    socket.notify(stream.readiness());
}
