//! Datagrams: received ones, to the handler or to workers, and the workers' answers.

use slipstack_channel::{Arrived, SockId};

use crate::connections::DatagramSocketId;
use crate::context::{Context, Core};
use crate::dispatch::Dispatcher;
use crate::host::Host;
use crate::panics::guarded;
use crate::raw;
use crate::received::{Datagram, Received};
use crate::service::Service;

/// Time after which workers' answers that found no room are sent again.
const RESEND_NS: u64 = 1_000_000;

impl<S: Service> Host<S> {
    /// Calls the handler for a datagram whose frame is being received; `false` if the socket is
    /// not the service's any more.
    #[inline]
    pub(crate) fn take_arrived(&mut self, now: u64, sock: SockId, arrived: &Arrived<'_>) -> bool {
        if !self.core.datagram_sockets.borrow().contains(&sock) {
            return false;
        }
        let has_dispatcher = self.has_dispatcher;
        let cx = Context {
            core: &self.core,
            now_ns: now,
        };
        let id = DatagramSocketId(sock);
        let service = &mut self.service;
        let datagram = Datagram {
            from: arrived.from,
            to: arrived.to,
            payload: Received::new(arrived.payload, &[]),
        };
        self.handled += 1;
        if has_dispatcher && is_passed(cx.core, id, &datagram) {
            return true;
        }
        cx.core.is_arriving.set(true);
        if guarded(|| service.on_datagram(&cx, id, &datagram)).is_none() {
            cx.core.counts.panics.add(1);
        }
        cx.core.is_arriving.set(false);
        true
    }

    pub(crate) fn take_datagrams(&mut self, now: u64, sock: SockId) {
        let has_dispatcher = self.has_dispatcher;
        let cx = Context {
            core: &self.core,
            now_ns: now,
        };
        let id = DatagramSocketId(sock);
        let service = &mut self.service;
        let mut taken = 0;
        while let Some(lying) = cx.core.program.datagram_in_place(sock) {
            let end = lying.end();
            taken += 1;
            if let (Some(from), Some(to)) = (lying.envelope.peer, lying.envelope.local) {
                let [first, second] = lying.payload;
                let payload = Received::new(raw::bytes(first, &cx), raw::bytes(second, &cx));
                let datagram = Datagram { from, to, payload };
                if (!has_dispatcher || !is_passed(cx.core, id, &datagram))
                    && guarded(|| service.on_datagram(&cx, id, &datagram)).is_none()
                {
                    cx.core.counts.panics.add(1);
                }
            }
            cx.core.program.consume_datagram(sock, end);
        }
        cx.core.counts.datagrams.add(taken);
    }

    /// Sends the workers' answers.
    #[cold]
    pub(crate) fn take_answers(&mut self, now: u64) {
        let cx = Context {
            core: &self.core,
            now_ns: now,
        };
        let mut dispatcher = self.core.dispatcher.borrow_mut();
        let Some(dispatcher) = dispatcher.as_mut() else {
            return;
        };
        let is_refused = dispatcher.take_answers(|socket, peer, local, answer| {
            let is_closed = !self.core.datagram_sockets.borrow().contains(&socket.0);
            is_closed || cx.try_send_to(socket, peer, Some(local), answer).is_ok()
        });
        self.resend_at = is_refused.then_some(now + RESEND_NS);
    }

    pub(crate) fn has_answers(&self) -> bool {
        self.has_dispatcher && {
            let dispatcher = self.core.dispatcher.borrow();
            dispatcher.as_ref().is_some_and(Dispatcher::has_answers)
        }
    }

    /// Wakes the workers that have got datagrams in this turn.
    #[cold]
    pub(crate) fn flush_dispatcher(&mut self) {
        if let Some(dispatcher) = self.core.dispatcher.borrow_mut().as_mut() {
            dispatcher.flush();
        }
    }
}

/// Passes a datagram on if it goes to workers without calling the handler.
fn is_passed<R>(core: &Core<R>, socket: DatagramSocketId, datagram: &Datagram<'_>) -> bool {
    let mut dispatcher = core.dispatcher.borrow_mut();
    if let Some(dispatcher) = dispatcher.as_mut()
        && dispatcher.is_for_workers()
    {
        dispatcher.pass(socket, datagram, &core.counts);
        return true;
    }
    false
}
