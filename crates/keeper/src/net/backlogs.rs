//! Backlogs of listening sockets that no engine serves yet.
//!
//! On the kernel, connections can be made as soon as `listen` returns. A program's engine listens
//! only when the program first waits on the socket, and the program has no engine before its first
//! wait. Until then this stack listens in its place, and connections wait as in the socket's
//! backlog. The engine that later listens at their address gets them in the same way as those of a
//! listener that has closed. A port may have several sockets, at different addresses or one for
//! each family, of which engines serve some already.

use std::collections::HashMap;
use std::net::SocketAddr;

use slipstack_channel::{PASSED_CHUNK, Passed, PassingHead, Reason, UrgentAhead};
use slipstack_stack::{
    Bound, CloseMode, ConnId, ConnectionImage, HalfOpenImage, Instant, ListenOptions, ListenerId,
    SocketOptions,
};

use super::Net;
use super::effects::NetEffects;
use super::flows::{find_flow, is_request};
use super::intents::Intent;
use super::parked::Untaken;

/// Most connections that wait at one socket, whatever its backlog.
const BACKLOG_MAX: u32 = 4096;
/// SYN-ACKs for which a connection waits for data where the listener defers: half a minute.
const DEFERRALS: u8 = 5;
/// Sockets that are listened for at most.
const LISTENERS_MAX: usize = 1024;
/// Received bytes of all waiting connections at most; one that gets more is reset.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// Interval of checks whether the sockets still exist.
const ASK_NS: u64 = 100_000_000;

/// A socket that is listened for.
#[derive(Debug)]
struct Unattended {
    local: SocketAddr,
    /// The link that it is bound to, as `Choice::link`.
    link: u16,
    /// As of the last look.
    intent: Intent,
    id: ListenerId,
    /// Connections that have left the queue, and the number reported to the stack (wrapping).
    gone: u32,
    announced: u32,
}

/// A connection that waits.
#[derive(Debug)]
struct Waiting {
    listener: ListenerId,
    local: SocketAddr,
    remote: SocketAddr,
    /// As of its listener.
    link: u16,
    /// Place in the order of arrival.
    number: u64,
    bytes: Vec<u8>,
    /// Received in order.
    upto: usize,
    has_fin: bool,
    urgent: UrgentAhead,
    /// The error that has ended it: no stack has it any more, but its program accepts it and is
    /// told of the error, as on the kernel.
    ended: Option<Reason>,
}

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub(super) struct Backlogs {
    listeners: Vec<Unattended>,
    conns: HashMap<ConnId, Waiting>,
    bytes: usize,
    /// Sockets that a SYN was for and that are not listened for yet.
    wanted: Vec<(SocketAddr, Intent, u16)>,
    asked_ns: u64,
    /// Number of the last message about a connection that was passed on.
    tag: u64,
    /// Connections made here, and those that no program has taken.
    pub(super) made: u64,
    pub(super) reset: u64,
}

/// A connection that no stack has, with the bytes that its peer has sent.
pub(super) struct Detached<'a> {
    pub image: &'a ConnectionImage,
    pub bytes: &'a [u8],
    pub has_fin: bool,
    pub urgent: UrgentAhead,
}

impl Backlogs {
    /// Records a SYN to a socket that no engine serves.
    pub(super) fn want(&mut self, port: u16, (intent, link): (Intent, u16)) {
        let local = SocketAddr::new(intent.ip, port);
        let is_known = self
            .listeners
            .iter()
            .any(|it| (it.local, it.link) == (local, link))
            || self
                .wanted
                .iter()
                .any(|(wanted, _, on)| (*wanted, *on) == (local, link));
        if !is_known && self.listeners.len() + self.wanted.len() < LISTENERS_MAX {
            self.wanted.push((local, intent, link));
        }
    }

    /// The beginning of the messages about a connection that this stack passes on itself.
    pub(super) fn head(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        link: u16,
    ) -> PassingHead {
        self.tag += 1;
        PassingHead {
            hops: 0,
            link,
            tag: self.tag,
            local,
            remote,
        }
    }

    /// Ports with sockets that are listened for, or with connections that wait.
    pub(super) fn ports(&self) -> Vec<u16> {
        let listened = self.listeners.iter().map(|it| it.local.port());
        let mut ports: Vec<u16> = listened
            .chain(self.conns.values().map(|it| it.local.port()))
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// The connections on a port of which this is true, in the order of arrival.
    fn on_port(&self, port: u16, mut is_it: impl FnMut(&Waiting) -> bool) -> Vec<ConnId> {
        let there = self.conns.iter();
        let there = there.filter(|(_, it)| it.local.port() == port && is_it(it));
        let mut conns: Vec<(u64, ConnId)> = there.map(|(id, it)| (it.number, *id)).collect();
        conns.sort_unstable_by_key(|(number, _)| *number);
        conns.into_iter().map(|(_, id)| id).collect()
    }

    /// Takes out the sockets on a port of which this is true.
    fn take_listeners(
        &mut self,
        port: u16,
        mut is_it: impl FnMut(&Unattended) -> bool,
    ) -> Vec<Unattended> {
        let all = std::mem::take(&mut self.listeners).into_iter();
        let (taken, left) = all.partition(|it| it.local.port() == port && is_it(it));
        self.listeners = left;
        taken
    }

    pub(super) fn on_accepted(
        &mut self,
        listener: ListenerId,
        conn: ConnId,
        (local, remote): (SocketAddr, SocketAddr),
    ) {
        self.made += 1;
        let of = self.listeners.iter().find(|it| it.id == listener);
        let waiting = Waiting {
            listener,
            local,
            remote,
            link: of.map_or(0, |it| it.link),
            number: self.made,
            bytes: Vec::new(),
            upto: 0,
            has_fin: false,
            urgent: UrgentAhead::default(),
            ended: None,
        };
        self.conns.insert(conn, waiting);
    }

    /// Keeps received bytes. `false`: the connection does not wait here, or there is no room.
    pub(super) fn store(&mut self, conn: ConnId, offset: u64, bytes: &[u8]) -> bool {
        let Some(waiting) = self.conns.get_mut(&conn) else {
            return false;
        };
        let at = offset as usize;
        let end = at + bytes.len();
        let more = end.saturating_sub(waiting.bytes.len());
        if self.bytes + more > BYTES_MAX {
            return false;
        }
        self.bytes += more;
        waiting.bytes.resize(waiting.bytes.len().max(end), 0);
        waiting.bytes[at..end].copy_from_slice(bytes);
        true
    }

    pub(super) fn on_received(&mut self, conn: ConnId, upto: u64) {
        if let Some(waiting) = self.conns.get_mut(&conn) {
            waiting.upto = upto as usize;
        }
    }

    pub(super) fn on_fin(&mut self, conn: ConnId) {
        if let Some(waiting) = self.conns.get_mut(&conn) {
            waiting.has_fin = true;
        }
    }

    pub(super) fn on_urgent(&mut self, conn: ConnId, at: u64, byte: Option<u8>) {
        if let Some(waiting) = self.conns.get_mut(&conn) {
            waiting.urgent.note(at, byte, waiting.upto as u64);
        }
    }

    pub(super) fn on_failed(&mut self, conn: ConnId, reason: Reason) {
        if let Some(waiting) = self.conns.get_mut(&conn) {
            waiting.ended = Some(reason);
        }
    }

    /// Handles the end of a connection in its stack. One that has failed goes on waiting.
    pub(super) fn on_released(&mut self, conn: ConnId) {
        if self.conns.get(&conn).is_some_and(|it| it.ended.is_none()) {
            self.forget(conn);
        }
    }

    /// A connection waits no more.
    fn forget(&mut self, conn: ConnId) -> Option<Waiting> {
        let mut waiting = self.conns.remove(&conn)?;
        self.bytes -= waiting.bytes.len();
        let mut listeners = self.listeners.iter_mut();
        if let Some(listener) = listeners.find(|it| it.id == waiting.listener) {
            listener.gone = listener.gone.wrapping_add(1);
        }
        waiting.bytes.truncate(waiting.upto);
        Some(waiting)
    }

    pub(super) fn len(&self) -> usize {
        self.conns.len()
    }

    pub(super) fn is_listening(&self) -> bool {
        !self.listeners.is_empty()
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        let is_idle = self.listeners.is_empty() && self.conns.is_empty();
        (!is_idle).then_some(self.asked_ns + ASK_NS)
    }
}

impl Net {
    /// A listener has left the port in order: its connections are on their way to others.
    pub fn note_moving(&mut self, port: u16, now: u64) {
        self.effects.strays.note_moving(port, now);
    }

    /// Listens for sockets that a SYN was for, passes on connections for which an engine listens,
    /// and ends those whose socket is closed.
    pub(super) fn serve_backlogs(&mut self, now: u64) {
        for (local, intent, link) in std::mem::take(&mut self.effects.backlogs.wanted) {
            self.listen_for((local, link), intent, now);
        }
        let Net { effects, stack, .. } = self;
        let backlogs = &mut effects.backlogs;
        for listener in backlogs
            .listeners
            .iter_mut()
            .filter(|it| it.gone != it.announced)
        {
            listener.announced = listener.gone;
            stack.tcp_accepted(listener.id, listener.gone);
        }
        if backlogs.next_deadline().is_none_or(|due| now < due) {
            return;
        }
        backlogs.asked_ns = now;
        for port in backlogs.ports() {
            self.pass_backlog(port, now);
            self.close_backlog(port, now);
        }
    }

    /// Before a SYN opens a connection to a socket that has been closed or changed a moment ago.
    pub(super) fn verify_backlog(&mut self, frame: &[u8], now: u64) {
        let flow = find_flow(frame).filter(|_| is_request(frame));
        let Some(port) = flow.map(|flow| flow.local.port()) else {
            return;
        };
        let backlogs = &self.effects.backlogs;
        if backlogs.listeners.iter().any(|it| it.local.port() == port) {
            self.effects.intents.renew(now);
            // Its connections are looked through only then, as SYNs may be many.
            if self.close_listeners(port, now) {
                self.close_backlog(port, now);
            }
            self.renew_options(port, now);
        }
    }

    /// Listens with the options that the sockets of a port have now.
    fn renew_options(&mut self, port: u16, now: u64) {
        let Net { effects, stack, .. } = self;
        let NetEffects {
            backlogs, intents, ..
        } = effects;
        for it in &mut backlogs.listeners {
            let present = (it.local.port() == port)
                .then(|| intents.at(it.local, it.link, now))
                .flatten();
            if let Some(intent) = present.filter(|intent| *intent != it.intent) {
                it.intent = intent;
                let options = options_of(&intent, it.link);
                let _ = stack.tcp_set_backlog(it.id, options.backlog);
                let _ = stack.tcp_set_preset(it.id, options.socket);
            }
        }
    }

    fn listen_for(&mut self, (local, link): (SocketAddr, u16), intent: Intent, now: u64) {
        // Where it cannot, the SYN waits until an engine serves the port.
        let Ok(id) = self.stack.tcp_listen(local, options_of(&intent, link)) else {
            return;
        };
        let backlogs = &mut self.effects.backlogs;
        if backlogs.next_deadline().is_none() {
            backlogs.asked_ns = now;
        }
        backlogs.listeners.push(Unattended {
            local,
            link,
            intent,
            id,
            gone: 0,
            announced: 0,
        });
        self.effects.strays.hurry(local.port());
    }

    /// Passes connections that wait here to the engines that listen at their addresses, as far as
    /// there is room on the way.
    pub(super) fn pass_backlog(&mut self, port: u16, now: u64) {
        if !self.effects.servers.has_port(port) {
            return;
        }
        let NetEffects {
            backlogs, servers, ..
        } = &mut self.effects;
        let is_served = |it: &Unattended| {
            let span = Bound::new(it.local.ip(), it.intent.is_v6_only);
            servers.has(span, port, it.link)
        };
        for Unattended { id, link, .. } in backlogs.take_listeners(port, is_served) {
            let images = self.stack.tcp_detach_half_open(id);
            if !images.is_empty() {
                self.note_moving(port, now);
            }
            for image in images {
                self.pass_half_open(&image, link, now);
            }
            let _ = self.stack.tcp_unlisten(id);
        }
        let NetEffects {
            backlogs, servers, ..
        } = &self.effects;
        for conn in backlogs.on_port(port, |it| servers.takes(it.local, it.link)) {
            if !self.effects.parked.has_room() {
                return;
            }
            self.pass_waiting(conn, now);
        }
    }

    /// As [`Net::pass_on`], for a half-open connection whose port has been noted as moving.
    pub fn pass_half_open(&mut self, image: &HalfOpenImage, link: u16, now: u64) {
        if let Some(ends) = image.endpoints() {
            let head = self.effects.backlogs.head(ends, link);
            let image = image.to_bytes();
            self.take_passing(&head, Passed::HalfOpen(&image), now);
        }
    }

    fn pass_waiting(&mut self, conn: ConnId, now: u64) {
        let Some(waiting) = self.effects.backlogs.forget(conn) else {
            return;
        };
        if let Some(reason) = waiting.ended {
            self.pass_ended(&waiting, reason, now);
            return;
        }
        let Some(image) = self.stack.tcp_detach(conn) else {
            return;
        };
        let image = image.without_ranges();
        let detached = Detached {
            image: &image,
            bytes: &waiting.bytes,
            has_fin: waiting.has_fin,
            urgent: waiting.urgent,
        };
        self.pass_on(detached, now);
    }

    /// As [`Net::pass_on`], for a connection of which its bytes and its error are left.
    fn pass_ended(&mut self, waiting: &Waiting, reason: Reason, now: u64) {
        let ends = (waiting.local, waiting.remote);
        let head = self.effects.backlogs.head(ends, waiting.link);
        let ended = Passed::Ended {
            len: waiting.bytes.len() as u32,
            has_fin: waiting.has_fin,
            urgent: waiting.urgent,
            reason,
        };
        self.take_all(&head, ended, &waiting.bytes, now);
    }

    /// Sends a connection with its received data to the listener that the steering table names, or
    /// keeps it until there is one.
    pub(super) fn pass_on(&mut self, detached: Detached<'_>, now: u64) {
        let Some(ends) = detached.image.endpoints() else {
            return;
        };
        // Segments of its peer that come meanwhile are held for it, not answered by a reset.
        self.note_moving(ends.0.port(), now);
        let link = detached.image.link();
        let head = self.effects.backlogs.head(ends, link);
        let image = detached.image.to_bytes();
        let open = Passed::Open {
            len: detached.bytes.len() as u32,
            has_fin: detached.has_fin,
            urgent: detached.urgent,
            image: &image,
        };
        self.take_all(&head, open, detached.bytes, now);
    }

    /// Sends the messages of a connection on: the first one, and those of its received bytes.
    fn take_all(&mut self, head: &PassingHead, first: Passed<'_>, bytes: &[u8], now: u64) {
        let chunks = bytes.chunks(PASSED_CHUNK).map(Passed::Bytes);
        for passed in std::iter::once(first).chain(chunks) {
            self.take_passing(head, passed, now);
        }
    }

    /// Resets a connection that no program will take.
    pub(super) fn refuse(&mut self, untaken: &Untaken, now: u64) {
        self.parked_reset += 1;
        let Net { stack, effects, .. } = self;
        let now = Instant(now);
        match untaken {
            Untaken::Open(image) => stack.tcp_refuse(now, image, effects),
            Untaken::HalfOpen(image, link) => {
                stack.tcp_refuse_half_open(now, image, *link, effects);
            }
        }
    }

    /// Closes the listeners whose sockets were closed. Returns whether there were any.
    fn close_listeners(&mut self, port: u16, now: u64) -> bool {
        let NetEffects {
            backlogs, intents, ..
        } = &mut self.effects;
        let closed = backlogs.take_listeners(port, |it| {
            let there = (it.local.ip(), it.intent.is_v6_only, it.link);
            !intents.has(port, now, |intent, on| {
                (intent.ip, intent.is_v6_only, on) == there
            })
        });
        for it in &closed {
            let _ = self.stack.tcp_unlisten(it.id);
        }
        !closed.is_empty()
    }

    /// Ends the unaccepted connections of sockets that were closed.
    fn close_backlog(&mut self, port: u16, now: u64) {
        self.close_listeners(port, now);
        let NetEffects {
            backlogs, intents, ..
        } = &mut self.effects;
        let orphaned = backlogs.on_port(port, |it| {
            let (ip, link) = (it.local.ip(), it.link);
            !intents.has(port, now, |intent, on| intent.takes(ip) && on == link)
        });
        for conn in orphaned {
            self.effects.backlogs.forget(conn);
            self.effects.backlogs.reset += 1;
            let (mode, effects) = (CloseMode::Abort, &mut self.effects);
            self.stack
                .tcp_close(Instant(now), conn, mode, true, effects);
        }
    }
}

fn options_of(intent: &Intent, link: u16) -> ListenOptions {
    ListenOptions {
        backlog: intent.backlog.min(BACKLOG_MAX),
        reuse_port: true,
        is_v6_only: intent.is_v6_only,
        socket: SocketOptions {
            link,
            defer_accept: if intent.is_deferring { DEFERRALS } else { 0 },
            ..SocketOptions::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTENER: ListenerId = ListenerId {
        index: 1,
        generation: 1,
    };

    fn at(port: u16) -> (SocketAddr, SocketAddr) {
        let local = SocketAddr::from(([10, 0, 0, 1], port));
        (local, SocketAddr::from(([10, 0, 0, 2], 5000)))
    }

    fn received(waiting: Option<Waiting>) -> Option<(Vec<u8>, bool, UrgentAhead)> {
        waiting.map(|it| (it.bytes, it.has_fin, it.urgent))
    }

    fn conn(index: u32) -> ConnId {
        ConnId {
            index,
            generation: 1,
        }
    }

    #[test]
    fn segments_in_any_order_are_held_up_to_the_first_gap() {
        let mut backlogs = Backlogs::default();
        backlogs.on_accepted(LISTENER, conn(1), at(80));
        assert!(backlogs.store(conn(1), 6, b"later"));
        assert!(backlogs.store(conn(1), 0, b"first"));
        backlogs.on_received(conn(1), 5);
        assert_eq!(backlogs.bytes, 11);
        backlogs.on_urgent(conn(1), 4, Some(b't'));
        let urgent = UrgentAhead {
            mark: Some((4, Some(b't'))),
            skips_first: false,
        };
        let first = (b"first".to_vec(), false, urgent);
        assert_eq!(received(backlogs.forget(conn(1))), Some(first));
        assert_eq!((backlogs.bytes, backlogs.len()), (0, 0));
        assert!(!backlogs.store(conn(1), 0, b"gone"));
    }

    #[test]
    fn connections_leave_in_the_order_in_which_they_came() {
        let mut backlogs = Backlogs::default();
        for index in [5, 3, 9, 1] {
            backlogs.on_accepted(LISTENER, conn(index), at(80));
        }
        backlogs.on_accepted(LISTENER, conn(7), at(81));
        backlogs.on_fin(conn(3));
        assert_eq!(backlogs.on_port(80, |_| true), [5, 3, 9, 1].map(conn));
        assert_eq!(backlogs.ports(), [80, 81]);
        let ended = (Vec::new(), true, UrgentAhead::default());
        assert_eq!(received(backlogs.forget(conn(3))), Some(ended));
        assert_eq!(backlogs.on_port(80, |_| true), [5, 9, 1].map(conn));
    }

    #[test]
    fn a_connection_that_has_failed_waits_with_its_bytes_and_its_error() {
        let mut backlogs = Backlogs::default();
        for index in [1, 2] {
            backlogs.on_accepted(LISTENER, conn(index), at(80));
            assert!(backlogs.store(conn(index), 0, b"bytes"));
            backlogs.on_received(conn(index), 5);
        }
        backlogs.on_failed(conn(1), Reason::Reset);
        backlogs.on_released(conn(1));
        backlogs.on_released(conn(2));
        assert_eq!(backlogs.on_port(80, |_| true), [conn(1)]);
        let waiting = backlogs.forget(conn(1)).unwrap();
        assert_eq!(waiting.ended, Some(Reason::Reset));
        assert_eq!((waiting.bytes, backlogs.bytes), (b"bytes".to_vec(), 0));
    }

    #[test]
    fn waiting_connections_are_bounded() {
        let mut backlogs = Backlogs::default();
        backlogs.on_accepted(LISTENER, conn(1), at(80));
        let far = BYTES_MAX as u64;
        assert!(!backlogs.store(conn(1), far, b"x"));
        assert!(backlogs.store(conn(1), far - 1, b"x"));
    }
}
