//! The host of a service: takes the channel's events and calls handlers.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use slipstack_channel::{
    Arrived, ChannelEvent, CloseMode, Command, EventKind, Inside, Outgoing, Owner, ProgramEnd,
    REGION_BYTES, Reason, SockId, State,
};
use slipstack_mem::Doorbell;

use crate::connections::{ConnectionId, ListenerId, Phase};
use crate::context::{Context, Core};
use crate::control::Control;
use crate::dispatch::{Dispatch, Dispatcher};
use crate::limits::Limits;
use crate::outcome::{Closed, Via};
use crate::panics::guarded;
use crate::service::Service;
use crate::workers::{Pool, Results};

/// Time for which a connection keeps an empty send ring.
const RING_KEPT_NS: u64 = 50_000_000;
/// Interval of checks of sockets that found no memory.
const STARVED_NS: u64 = 1_000_000;

/// The surroundings of a host.
#[derive(Debug, Default)]
pub struct Hosting {
    pub limits: Limits,
    /// For [`Context::submit`].
    pub pool: Option<Arc<Pool>>,
    /// Workers that answer datagrams; without them the engine does.
    pub dispatch: Option<Dispatch>,
    /// The engine's doorbell: workers' results ring it.
    pub bell: Option<Doorbell>,
    /// Other engines serve the same ports.
    pub shares_ports: bool,
    /// Bytes of addresses for the channel's region; without it as many as it can use.
    pub region_bytes: Option<usize>,
}

/// A service on one engine.
pub struct Host<S: Service> {
    pub(crate) service: S,
    /// By socket index.
    states: Vec<Option<S::Connection>>,
    pub(crate) core: Core<S::Result>,
    is_started: bool,
    is_stopped: bool,
    /// Time at which idle send rings are given back.
    release_at: Option<u64>,
    /// Time of the next check of sockets that found no memory.
    relieve_at: Option<u64>,
    pub(crate) has_dispatcher: bool,
    /// Time at which workers' answers that found no room are sent again.
    pub(crate) resend_at: Option<u64>,
    /// Datagrams handled on arrival since the last [`Owner::run`].
    pub(crate) handled: u64,
}

impl<S: Service> Host<S> {
    /// Makes a channel with a service at its end, for `Engine::attach_owner`.
    ///
    /// # Errors
    /// No memory for the channel.
    pub fn inside(service: S, hosting: Hosting) -> io::Result<(Inside, Control)> {
        let control = Control::new(hosting.bell.clone());
        let len = hosting.region_bytes.unwrap_or(REGION_BYTES);
        let make = |program| Host::new(service, hosting, program, &control);
        let inside = Inside::of_length(len, make)?;
        Ok((inside, control))
    }

    fn new(service: S, hosting: Hosting, program: ProgramEnd, control: &Control) -> Host<S> {
        let Hosting {
            limits,
            pool,
            dispatch,
            bell,
            shares_ports,
            region_bytes: _,
        } = hosting;
        let dispatcher = dispatch.map(|it| Dispatcher::new(&it, bell.clone()));
        Host {
            service,
            states: Vec::new(),
            has_dispatcher: dispatcher.is_some(),
            resend_at: None,
            handled: 0,
            core: Core {
                program,
                entries: Default::default(),
                timers: Default::default(),
                wake_at: Default::default(),
                listeners: Default::default(),
                datagram_sockets: Default::default(),
                is_arriving: Default::default(),
                outgoing: Default::default(),
                asked: Default::default(),
                attempts: Default::default(),
                ended: Default::default(),
                read_out: Default::default(),
                retries: Default::default(),
                retry_at: Default::default(),
                has_written: Default::default(),
                results: Arc::new(Results::new(bell)),
                pool,
                dispatcher: RefCell::new(dispatcher),
                limits,
                shares_ports,
                counts: Arc::clone(&control.shared.counts),
                shared: Arc::clone(&control.shared),
            },
            is_started: false,
            is_stopped: false,
            release_at: None,
            relieve_at: None,
        }
    }

    /// Calls a handler that belongs to no connection.
    pub(crate) fn call<T>(
        &mut self,
        now: u64,
        handler: impl FnOnce(&mut S, &Context<'_, S::Result>) -> T,
    ) -> Option<T> {
        let cx = Context {
            core: &self.core,
            now_ns: now,
        };
        let service = &mut self.service;
        let called = guarded(|| handler(service, &cx));
        if called.is_none() {
            self.core.counts.panics.add(1);
        }
        called
    }

    /// Calls a handler of an open connection; does nothing if the service has closed it.
    #[inline]
    fn call_for(
        &mut self,
        now: u64,
        sock: SockId,
        handler: impl FnOnce(&mut S, &Context<'_, S::Result>, ConnectionId, &mut S::Connection),
    ) {
        let cx = Context {
            core: &self.core,
            now_ns: now,
        };
        let id = ConnectionId(sock);
        if !cx.is_open(id) {
            return;
        }
        let Some(Some(state)) = self.states.get_mut(sock.index as usize) else {
            return;
        };
        let service = &mut self.service;
        if guarded(|| handler(service, &cx, id, state)).is_none() {
            self.end_panicked(now, sock);
        }
    }

    /// A handler of this connection, or a job of its, has panicked.
    #[cold]
    fn end_panicked(&mut self, now: u64, sock: SockId) {
        self.core.counts.panics.add(1);
        self.core.program.close(sock, CloseMode::Abort);
        self.finish(now, sock, Closed::Panicked);
    }

    /// Forgets a connection and notifies the service.
    fn finish(&mut self, now: u64, sock: SockId, why: Closed) {
        self.core.entries.borrow_mut().end(sock);
        self.core.timers.borrow_mut().clear(sock.index);
        let open = self.core.entries.borrow().live as u64;
        self.core.counts.open.set(open);
        let state = self.states.get_mut(sock.index as usize);
        if let Some(state) = state.and_then(Option::take) {
            self.call(now, |service, cx| {
                service.on_closed(cx, ConnectionId(sock), state, why);
            });
        }
    }

    /// Forgets connections that handlers have closed, also in the handlers that this calls.
    #[inline]
    fn finish_ended(&mut self, now: u64) {
        loop {
            let cx = Context {
                core: &self.core,
                now_ns: now,
            };
            let Some((sock, why)) = cx.take_ended() else {
                return;
            };
            self.finish(now, sock, why);
        }
    }

    // Events.

    fn on_event(&mut self, now: u64, event: ChannelEvent) {
        match event.kind {
            EventKind::Changed => self.on_changed(now, event.sock),
            EventKind::Accepted { listener } => {
                while let Some(sock) = self.core.program.accept(listener) {
                    self.on_accepted(now, sock, listener);
                }
            }
            EventKind::Released => {}
            EventKind::Withdrawn { listener } => {
                self.core.program.push(Command::Resume { sock: listener });
            }
        }
    }

    fn on_accepted(&mut self, now: u64, sock: SockId, listener: SockId) {
        let is_full = self.core.entries.borrow().live >= self.core.limits.connections_max;
        if is_full || self.is_stopped {
            self.core.counts.refused.add(1);
            self.core.program.close(sock, CloseMode::Abort);
            return;
        }
        self.core.counts.accepted.add(1);
        self.core.entries.borrow_mut().begin(sock, Phase::Open);
        self.open(now, sock, Via::Listener(ListenerId(listener)));
        self.on_changed(now, sock);
    }

    fn open(&mut self, now: u64, sock: SockId, via: Via) {
        let open = self.core.entries.borrow().live as u64;
        self.core.counts.open.set(open);
        let id = ConnectionId(sock);
        let state = self.call(now, |service, cx| service.on_open(cx, id, via));
        let index = sock.index as usize;
        if self.states.len() <= index {
            self.states.resize_with(index + 1, || None);
        }
        match state.flatten() {
            Some(state) => self.states[index] = Some(state),
            None => {
                self.core.counts.refused.add(1);
                self.core.program.close(sock, CloseMode::Abort);
                self.core.entries.borrow_mut().end(sock);
            }
        }
    }

    /// Handles an event of a socket.
    #[inline]
    fn on_changed(&mut self, now: u64, sock: SockId) {
        let phase = self.core.entries.borrow_mut().find(sock).map(|it| it.phase);
        match phase {
            Some(Phase::Open) => self.on_open_changed(now, sock),
            Some(Phase::Connecting { tag }) => self.on_attempt_changed(now, sock, tag),
            Some(Phase::Closing | Phase::None) => {}
            None => {
                if self.core.datagram_sockets.borrow().contains(&sock) {
                    self.take_datagrams(now, sock);
                }
            }
        }
    }

    fn on_open_changed(&mut self, now: u64, sock: SockId) {
        let state = self.core.program.state(sock);
        if state.contains(State::ERR) {
            let reason = self.core.program.take_error(sock);
            let has_data = self.core.program.rx_available(sock) > 0;
            if has_data {
                self.call_for(now, sock, |service, cx, id, state| {
                    service.on_data(cx, id, state);
                });
            }
            return self.fail(now, sock, Closed::Failed(reason.unwrap_or(Reason::Reset)));
        }
        if self.takes_room(sock) {
            self.call_for(now, sock, |service, cx, id, state| {
                service.on_room(cx, id, state);
            });
        } else if self.core.program.rx_available(sock) > 0 {
            self.call_for(now, sock, |service, cx, id, state| {
                service.on_data(cx, id, state);
            });
        }
        if state.contains(State::RDHUP) {
            self.tell_end(now, sock);
        }
        if state.contains(State::CLOSED) {
            self.on_gone(now, sock);
        }
        self.finish_ended(now);
    }

    /// The connection is no more in the stack. Bytes that the service has no place for yet stay in
    /// the ring until it takes them.
    fn on_gone(&mut self, now: u64, sock: SockId) {
        if self.core.program.rx_available(sock) == 0 {
            return self.fail(now, sock, Closed::Done);
        }
        self.core.entries.borrow_mut().note_gone(sock);
    }

    /// Ends the connections whose last bytes have been taken.
    #[cold]
    fn end_read(&mut self, now: u64) {
        for sock in self.core.read_out.take() {
            let cx = Context {
                core: &self.core,
                now_ns: now,
            };
            if cx.is_open(ConnectionId(sock)) {
                self.tell_end(now, sock);
                self.fail(now, sock, Closed::Done);
            }
        }
    }

    /// Returns whether a write waits for room and there is some.
    fn takes_room(&mut self, sock: SockId) -> bool {
        let mut entries = self.core.entries.borrow_mut();
        let Some(entry) = entries.find(sock) else {
            return false;
        };
        if entry.wants_room && self.core.program.is_writable(sock) {
            entry.wants_room = false;
            return true;
        }
        false
    }

    /// Reports the peer's FIN to the service once, after the last byte.
    fn tell_end(&mut self, now: u64, sock: SockId) {
        if self.core.program.rx_available(sock) > 0 {
            return;
        }
        {
            let mut entries = self.core.entries.borrow_mut();
            let Some(entry) = entries.find(sock) else {
                return;
            };
            if entry.is_end_told || entry.phase != Phase::Open {
                return;
            }
            entry.is_end_told = true;
        }
        self.call_for(now, sock, |service, cx, id, state| {
            service.on_end(cx, id, state);
        });
    }

    /// The connection is no more in the stack.
    fn fail(&mut self, now: u64, sock: SockId, why: Closed) {
        self.finish_ended(now);
        if self.core.entries.borrow_mut().find(sock).is_some() {
            self.core.program.close(sock, CloseMode::Orderly);
            self.finish(now, sock, why);
        }
    }

    fn on_attempt_changed(&mut self, now: u64, sock: SockId, tag: u64) {
        let state = self.core.program.state(sock);
        if state.intersects(State::ERR | State::CLOSED) {
            let reason = self.core.program.take_error(sock);
            return self.fail_attempt(now, sock, tag, reason.unwrap_or(Reason::Refused));
        }
        if state.contains(State::CONNECTED) {
            if let Some(entry) = self.core.entries.borrow_mut().find(sock) {
                entry.phase = Phase::Open;
            }
            self.core.counts.connected.add(1);
            self.open(now, sock, Via::Connect(tag));
            self.on_open_changed(now, sock);
        }
    }

    fn fail_attempt(&mut self, now: u64, sock: SockId, tag: u64, reason: Reason) {
        self.core.program.close(sock, CloseMode::Abort);
        self.core.entries.borrow_mut().end(sock);
        self.call(now, |service, cx| {
            service.on_connect_failed(cx, tag, reason);
        });
    }

    // Other parts of a turn.

    #[cold]
    fn take_results(&mut self, now: u64) {
        for (id, result) in self.core.results.take() {
            match self.core.entries.borrow_mut().find(id.0) {
                Some(entry) => entry.jobs = entry.jobs.saturating_sub(1),
                None => {
                    self.core.counts.late_results.add(1);
                    continue;
                }
            }
            match result {
                Some(result) => self.call_for(now, id.0, |service, cx, id, state| {
                    service.on_result(cx, id, state, result);
                }),
                None => self.end_panicked(now, id.0),
            }
            self.settle(now, id.0);
        }
    }

    /// After a handler that events did not call: the end may be due now.
    fn settle(&mut self, now: u64, sock: SockId) {
        if self.core.program.state(sock).contains(State::RDHUP) {
            self.tell_end(now, sock);
        }
        self.finish_ended(now);
    }

    #[cold]
    fn run_timers(&mut self, now: u64) {
        loop {
            let due = self.core.timers.borrow_mut().pop_due(now);
            let Some(index) = due else { break };
            let ids = self.core.entries.borrow().at(index);
            if let Some(sock) = ids {
                self.call_for(now, sock, |service, cx, id, state| {
                    service.on_timer(cx, id, state);
                });
                self.settle(now, sock);
            }
        }
        if self.core.wake_at.get().is_some_and(|at| at <= now) {
            self.core.wake_at.set(None);
            self.call(now, |service, cx| service.on_wake(cx));
        }
        if self.core.retry_at.get().is_some_and(|at| at <= now) {
            self.core.retry_at.set(None);
            let retries = self.core.retries.take();
            for sock in retries {
                self.call_for(now, sock, |service, cx, id, state| {
                    service.on_data(cx, id, state);
                });
                self.settle(now, sock);
            }
        }
        if self.resend_at.is_some_and(|at| at <= now) {
            self.take_answers(now);
        }
        if self.release_at.is_some_and(|at| at <= now) {
            self.release_at = None;
            self.core.program.release_idle();
            let is_left = self.core.program.tx_memory() > 0;
            self.core.has_written.set(is_left);
        }
        if self.relieve_at.is_some_and(|at| at <= now) {
            self.core.program.notify_starved();
        }
    }

    #[cold]
    fn stop(&mut self, now: u64) {
        self.is_stopped = true;
        for sock in std::mem::take(&mut *self.core.listeners.borrow_mut()) {
            self.core.program.close(sock, CloseMode::Orderly);
        }
        for sock in std::mem::take(&mut *self.core.datagram_sockets.borrow_mut()) {
            self.core.program.close(sock, CloseMode::Orderly);
        }
        let all = self.core.entries.borrow().ids();
        for sock in all {
            self.call_for(now, sock, |service, cx, id, state| {
                service.on_stop(cx, id, state);
            });
        }
        self.finish_ended(now);
    }

    fn has_due(&self, now: u64) -> bool {
        self.next_deadline_ns().is_some_and(|at| at <= now)
    }
}

impl<S: Service> Owner for Host<S> {
    fn on_datagram(&mut self, now: u64, sock: SockId, arrived: &Arrived<'_>) -> bool {
        self.take_arrived(now, sock, arrived)
    }

    fn take_outgoing(&mut self, empty: &mut Outgoing) {
        std::mem::swap(self.core.outgoing.get_mut(), empty);
    }

    fn run(&mut self, now: u64) {
        if !self.is_started {
            self.is_started = true;
            self.call(now, |service, cx| service.on_start(cx));
        }
        if self.handled > 0 {
            self.core
                .counts
                .datagrams
                .add(std::mem::take(&mut self.handled));
        }
        if self.core.results.is_any() {
            self.take_results(now);
        }
        if self.has_answers() {
            self.take_answers(now);
        }
        if !self.core.asked.borrow().is_empty() {
            self.take_replies(now);
        }
        while let Some(event) = self.core.program.poll_event() {
            self.on_event(now, event);
        }
        if self.has_due(now) {
            self.run_timers(now);
        }
        if self.core.shared.is_stopping() && !self.is_stopped {
            self.stop(now);
        }
        if !self.core.read_out.borrow().is_empty() {
            self.end_read(now);
        }
        self.finish_ended(now);
        if !self.core.attempts.borrow().is_empty() {
            self.send_attempts();
        }
        if self.core.has_written.take() && self.release_at.is_none() {
            self.release_at = Some(now + RING_KEPT_NS);
        }
        if self.core.asked.borrow().is_empty() {
            self.core.shared.set_ready();
        }
        if self.is_stopped && self.core.entries.borrow().live == 0 {
            self.core.shared.set_over();
        }
        if self.has_dispatcher {
            self.flush_dispatcher();
        }
        self.relieve_at = self.core.program.is_starving().then_some(now + STARVED_NS);
        self.core.program.flush_overflow();
    }

    fn has_work(&self) -> bool {
        !self.is_started
            || self.handled > 0
            || self.core.results.is_any()
            || self.has_answers()
            || (!self.is_stopped && self.core.shared.is_stopping())
            || !self.core.asked.borrow().is_empty()
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        let timer = self.core.timers.borrow().next();
        let of_service = earlier(self.core.wake_at.get(), self.core.retry_at.get());
        let of_rings = earlier(self.release_at, earlier(self.relieve_at, self.resend_at));
        earlier(timer, earlier(of_service, of_rings))
    }
}

/// Returns the earlier of two deadlines.
#[inline]
fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    let next = one.unwrap_or(u64::MAX).min(other.unwrap_or(u64::MAX));
    (next != u64::MAX).then_some(next)
}
