//! The stack's interface for sockets: TCP's calls, passed to [`crate::tcp`] with the parts of the
//! stack that they need.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use crate::effects::Effects;
use crate::error::SocketError;
use crate::ids::{ConnId, ListenerId};
use crate::options::{CloseMode, ListenOptions, PortHold, PortRange, SocketOption, SocketOptions};
use crate::stack::{Stack, cx};
use slipstack_terms::{SavedSyn, TcpInfo};

use crate::bound::Bound;
use crate::effects::ConnectionOrigin;
use crate::tcp::{
    ConnectionImage, EndedConnection, HalfOpenImage, HalfOpenRecord, TcpSizes, TimeWaitImage,
};
use crate::time::Instant;

impl Stack {
    /// Declares that no program can answer: ACKs are not delayed from now on, and delayed ones are
    /// due. Ends with [`Stack::attend`]. Returns whether there was a delayed one.
    pub fn leave_unattended(&mut self, now: Instant) -> bool {
        let is_owed = self.tcp.hurry_acks(now, &cx!(self));
        self.config.tcp.delayed_ack = Duration::ZERO;
        is_owed
    }

    /// The program is there again.
    pub fn attend(&mut self) {
        self.config.tcp.delayed_ack = self.delayed_ack;
    }

    /// Listens on an address; 0.0.0.0 is any of ours. Several listeners on one address, which all
    /// say `reuse_port`, share its connections by the flow's hash.
    pub fn tcp_listen(
        &mut self,
        local: SocketAddr,
        options: ListenOptions,
    ) -> Result<ListenerId, SocketError> {
        self.tcp.listen(local, options, &mut cx!(self))
    }

    pub fn tcp_set_backlog(&mut self, id: ListenerId, backlog: u32) -> Result<(), SocketError> {
        self.tcp.set_backlog(id, backlog)
    }

    /// Sets the options with which connections of a listener begin from now on.
    pub fn tcp_set_preset(
        &mut self,
        id: ListenerId,
        options: SocketOptions,
    ) -> Result<(), SocketError> {
        self.tcp.set_preset(id, options, &mut cx!(self))
    }

    /// Records the number of connections accepted from this listener so far (wrapping): makes
    /// room in the backlog.
    pub fn tcp_accepted(&mut self, id: ListenerId, total: u32) {
        self.tcp.accepted(id, total);
    }

    /// Ends a listener. Connections that wait to be accepted are the caller's to close.
    pub fn tcp_unlisten(&mut self, id: ListenerId) -> Result<(), SocketError> {
        self.tcp.unlisten(id)
    }

    /// Opens a connection; the SYN leaves at once. `local` with port 0 picks a port.
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &SocketOptions,
        fx: &mut impl Effects,
    ) -> Result<ConnId, SocketError> {
        self.tcp
            .connect(now, local, remote, options, &mut cx!(self), fx)
    }

    /// Returns whether an address is one of the stack's.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        self.net.is_own(ip)
    }

    /// Takes a port for a socket that neither listens nor connects yet, whosever the address is.
    /// Port 0 picks one; returns the port taken.
    pub fn tcp_reserve_port(
        &mut self,
        hold: PortHold,
        port: u16,
        reuse: bool,
        range: PortRange,
    ) -> Result<u16, SocketError> {
        self.tcp
            .reserve_port(hold, port, reuse, range, &mut cx!(self))
    }

    /// Returns whether a socket holds this port without a connection, at any address.
    pub fn tcp_is_held(&self, port: u16) -> bool {
        self.tcp.is_held(port)
    }

    /// Releases a port of [`Stack::tcp_reserve_port`].
    pub fn tcp_release_port(&mut self, hold: &PortHold, port: u16) {
        self.tcp.release_port(hold, port);
    }

    /// The program has put stream bytes up to `upto` into its send ring. They leave with `flush`.
    #[inline]
    pub fn tcp_written(&mut self, conn: ConnId, upto: u64, more: bool) {
        self.tcp.written(conn, upto, more);
    }

    /// Marks the bytes before `upto` in the send ring as urgent. Called before the bytes are
    /// announced.
    pub fn tcp_mark_urgent(&mut self, conn: ConnId, upto: u64) {
        self.tcp.mark_urgent(conn, upto);
    }

    /// Ends a record before `upto` in the send ring (MSG_EOR). Called before the bytes are
    /// announced.
    pub fn tcp_end_record(&mut self, conn: ConnId, upto: u64) {
        self.tcp.end_record(conn, upto);
    }

    /// The program has read up to `upto`. The receive buffer's size, if it has grown.
    pub fn tcp_consumed(&mut self, now: Instant, conn: ConnId, upto: u64) -> Option<u32> {
        self.tcp.consumed(now, conn, upto, &cx!(self))
    }

    /// The program has shut its reading side too.
    pub fn tcp_stop_reading(&mut self, conn: ConnId) {
        self.tcp.stop_reading(conn);
    }

    /// FIN after everything that was written.
    pub fn tcp_shutdown(&mut self, now: Instant, conn: ConnId, fx: &mut impl Effects) {
        self.tcp.shutdown(now, conn, &mut cx!(self), fx);
    }

    /// Sends at once what the connection may send now. Returns whether there was anything to check.
    pub fn tcp_push(&mut self, now: Instant, conn: ConnId, fx: &mut impl Effects) -> bool {
        self.tcp.push(now, conn, &mut cx!(self), fx)
    }

    /// Returns how many written bytes of a connection have not been sent.
    pub fn tcp_unsent(&self, conn: ConnId) -> u64 {
        self.tcp.unsent(conn)
    }

    /// Closes the program's side. `unread`: its unread bytes are dropped, which the peer learns by
    /// a reset (RFC 2525 2.17). `Event::Released` reports that the send ring is free.
    pub fn tcp_close(
        &mut self,
        now: Instant,
        conn: ConnId,
        mode: CloseMode,
        unread: bool,
        fx: &mut impl Effects,
    ) {
        self.tcp.close(now, conn, mode, unread, &mut cx!(self), fx);
    }

    /// Returns whether the end of the connection's program resets it (SO_LINGER).
    pub fn tcp_resets_at_end(&self, conn: ConnId) -> bool {
        self.tcp.resets_at_end(conn)
    }

    pub fn tcp_set_option(
        &mut self,
        now: Instant,
        conn: ConnId,
        option: SocketOption,
        fx: &mut impl Effects,
    ) -> Result<(), SocketError> {
        self.tcp.set_option(now, conn, option, &mut cx!(self), fx)
    }

    pub fn tcp_info(&self, now: Instant, conn: ConnId) -> Option<TcpInfo> {
        self.tcp.info(conn, now, &self.config.tcp)
    }

    /// Takes the headers of the SYN that opened a connection (TCP_SAVED_SYN).
    pub fn tcp_take_saved_syn(&mut self, conn: ConnId) -> Option<SavedSyn> {
        self.tcp.take_saved_syn(conn)
    }

    /// Looks whether everything holds that must hold between two calls; costs a walk over all
    /// connections. The error names a connection's index.
    pub fn tcp_audit(&self) -> Result<(), (u32, &'static str)> {
        self.tcp.audit()
    }

    pub fn tcp_sizes(&self) -> TcpSizes {
        self.tcp.sizes()
    }

    /// Own and peer's address.
    pub fn tcp_endpoints(&self, conn: ConnId) -> Option<(SocketAddr, SocketAddr)> {
        self.tcp.endpoints(conn)
    }

    /// Returns the connection with these ends.
    pub fn tcp_find(&self, local: SocketAddr, remote: SocketAddr) -> Option<ConnId> {
        self.tcp.find(local, remote)
    }

    /// Returns the link that a connection is bound to, as [`crate::fib::Choice::link_of`]; 0 =
    /// none.
    pub fn tcp_link(&self, conn: ConnId) -> u16 {
        self.net.choices.find(self.tcp.choice(conn)).link
    }

    /// Number of bytes that a program may have unacknowledged and unsent.
    pub fn tcp_sndbuf(&self, conn: ConnId) -> u32 {
        self.tcp.sndbuf(conn)
    }

    /// Returns how many bytes the peer may be ahead of the program's reads.
    pub fn tcp_rcvbuf(&self, conn: ConnId) -> u32 {
        self.tcp.rcvbuf(conn)
    }

    /// The connection leaves this stack without a word to the peer.
    pub fn tcp_detach(&mut self, conn: ConnId) -> Option<ConnectionImage> {
        let ends = self.tcp.endpoints(conn);
        let image = self.tcp.detach(conn, &self.net.choices)?;
        if let Some((local, remote)) = ends {
            self.note_detached(local, remote);
        }
        Some(image)
    }

    /// The image of a connection that stays.
    pub fn tcp_image(&self, conn: ConnId) -> Option<ConnectionImage> {
        self.tcp.image(conn, &self.net.choices)
    }

    /// Returns the parameters that the handshake of an open connection has negotiated, and its
    /// choice of routes, with which a keeper continues it if this engine is killed.
    pub fn tcp_origin(&self, conn: ConnId) -> Option<ConnectionOrigin> {
        self.tcp.origin(conn, &self.net.choices)
    }

    /// Takes a connection over; everything in the image is checked.
    pub fn tcp_adopt(
        &mut self,
        now: Instant,
        image: &ConnectionImage,
        fx: &mut impl Effects,
    ) -> Result<ConnId, SocketError> {
        let id = self.tcp.adopt(now, image, &mut cx!(self), fx)?;
        if let Some((local, remote)) = self.tcp.endpoints(id) {
            self.note_adopted(now, local, remote);
        }
        Ok(id)
    }

    /// Resets a connection that was not adopted, unless a connection here has the same ends.
    pub fn tcp_refuse(&mut self, now: Instant, image: &ConnectionImage, fx: &mut impl Effects) {
        self.tcp.refuse(now, image, &mut cx!(self), fx);
    }

    /// New connections go to other listeners of the same address first, or no longer so.
    pub fn tcp_set_yielding(&mut self, id: ListenerId, is_yielding: bool) {
        self.tcp.set_yielding(id, is_yielding);
    }

    /// The half-open connections of a listener leave this stack without a word to their peers.
    pub fn tcp_detach_half_open(&mut self, listener: ListenerId) -> Vec<HalfOpenImage> {
        let images = self.tcp.detach_half_open(listener);
        for (local, remote) in images.iter().filter_map(HalfOpenImage::endpoints) {
            self.note_detached(local, remote);
        }
        images
    }

    /// Takes a half-open connection over, for the listener of its address; everything in the image
    /// is checked.
    pub fn tcp_adopt_half_open(
        &mut self,
        now: Instant,
        image: &HalfOpenImage,
    ) -> Result<(), SocketError> {
        self.tcp.adopt_half_open(now, image, &mut cx!(self))?;
        if let Some((local, remote)) = image.endpoints() {
            self.note_adopted(now, local, remote);
        }
        Ok(())
    }

    /// Resets the peer of a half-open connection that no listener takes, unless a connection here
    /// has the same ends. `link` is that of the listener, its number plus one; 0 = any.
    pub fn tcp_refuse_half_open(
        &mut self,
        now: Instant,
        image: &HalfOpenImage,
        link: u16,
        fx: &mut impl Effects,
    ) {
        self.tcp
            .refuse_half_open(now, image, link, &mut cx!(self), fx);
    }

    /// Whether half-open connections or TIME-WAIT entries have changes to tell.
    #[inline]
    pub fn tcp_has_changes(&self) -> bool {
        self.tcp.has_changes()
    }

    /// From now on [`Stack::tcp_half_open_changes`] has something to tell.
    pub fn tcp_note_half_open(&mut self) {
        self.tcp.note_half_open();
    }

    /// Tells of each half-open connection that has begun, changed or ended since the last call: a
    /// number that no other has at the same time, and its record, or `None` if it has ended.
    #[inline]
    pub fn tcp_half_open_changes(&mut self, tell: impl FnMut(u32, Option<HalfOpenRecord>)) {
        self.tcp.half_open_changes(&self.net.choices, tell);
    }

    /// From now on [`Stack::tcp_time_wait_changes`] has something to tell.
    pub fn tcp_note_time_waits(&mut self) {
        self.tcp.note_time_waits();
    }

    /// Tells of each TIME-WAIT entry that has begun, begun again or ended since the last call: a
    /// number that no other has at the same time, and the entry, or `None` if it has ended.
    #[inline]
    pub fn tcp_time_wait_changes(
        &mut self,
        now: Instant,
        tell: impl FnMut(u32, Option<TimeWaitImage>),
    ) {
        self.tcp.time_wait_changes(now, tell);
    }

    /// Returns TIME-WAIT entries, at most `most`, those with most time left first: for the stack
    /// that goes on with them.
    pub fn tcp_time_waits(&self, now: Instant, most: usize) -> Vec<TimeWaitImage> {
        self.tcp.time_wait_images(now, most)
    }

    /// Goes on with a TIME-WAIT of another stack; everything in the image is checked.
    pub fn tcp_adopt_time_wait(
        &mut self,
        now: Instant,
        image: &TimeWaitImage,
    ) -> Result<(), SocketError> {
        self.tcp.adopt_time_wait(now, image, &cx!(self))
    }

    /// Ends the TIME-WAIT between two ends: another stack has used them since, or an operator wants
    /// it so. Returns whether there was one.
    pub fn tcp_forget_time_wait(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.tcp.forget_time_wait(local, remote)
    }

    /// Returns whether a connection, or the TIME-WAIT of one, has the port of `local` at an address
    /// that a socket bound to `local` would share.
    pub fn tcp_has_port(&self, local: SocketAddr, is_v6_only: bool) -> bool {
        let bound = Bound::new(local.ip(), is_v6_only);
        self.tcp.has_port(bound, local.port())
    }

    /// Every connection, for a list.
    pub fn tcp_connections(&self) -> Vec<ConnId> {
        self.tcp.connections()
    }

    /// Places for connections that have been made. Further connections take those that were used
    /// before.
    pub fn tcp_places(&self) -> usize {
        self.tcp.places()
    }

    /// Own and peer's address of every half-open connection.
    pub fn tcp_half_open(&self) -> Vec<(SocketAddr, SocketAddr)> {
        self.tcp.half_open()
    }

    /// Keeps connections that end before `until` for [`Stack::tcp_ended_since`].
    pub fn tcp_watch_ended(&mut self, until: Instant) {
        self.tcp.ended_mut().watch(until);
    }

    /// Returns the last connections that have ended, those from `at` on, in order.
    pub fn tcp_ended_since(&self, at: Instant) -> impl Iterator<Item = &EndedConnection> {
        self.tcp.ended().since(at)
    }

    /// Number of connections that may wait at a listener.
    pub fn tcp_backlog(&self, id: ListenerId) -> u32 {
        self.tcp.backlog(id)
    }

    /// Resets a connection on an operator's request: its program gets `Reason::Aborted`. Returns
    /// `false` if it is gone.
    pub fn tcp_abort(&mut self, now: Instant, conn: ConnId, fx: &mut impl Effects) -> bool {
        self.tcp.abort(now, conn, &mut cx!(self), fx)
    }

    /// Forgets a half-open connection. Returns `false` if there is none.
    pub fn tcp_forget_half_open(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.tcp.forget_half_open(local, remote)
    }

    /// Asks a peer for the state of a flow whose own state is lost: the peer answers an
    /// unacceptable segment with its exact numbers.
    pub fn tcp_probe(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        fx: &mut impl Effects,
    ) {
        self.tcp.probe(now, local, remote, &mut cx!(self), fx);
    }
}
