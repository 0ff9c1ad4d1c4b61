//! A UDP socket with a part on the stack, on the kernel, or on both.

mod errors;
mod yielding;

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering,
};

use slipstack_channel::{Envelope, MtuDiscovery, SockId};
use slipstack_mem::Lock;

use crate::attachment::{Attachment, Datagram};
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::ready::bits;
use crate::socket::ancillary::RequestedControl;
use crate::socket::datagram_flags::DatagramFlags;
use crate::socket::filter::Filters;
use crate::socket::left::copy;
use crate::socket::options::{Options, filter_in};
use crate::socket::turns::Turns;
use crate::socket::{Gathering, Left};

/// Which parts of a socket are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Bound to a wildcard, or to nothing yet.
    Both,
    /// Bound or connected to the stack's addresses.
    Stack,
    /// Connected to one of the kernel's.
    Kernel,
}

/// Linux's `net.core.wmem_default`.
const SNDBUF_DEFAULT: u32 = 212_992;
/// Overhead of a fragment in the send buffer: link header and alignment, `skb_shared_info`, and,
/// not rounded with it, the `sk_buff`.
const PIECE_BESIDE: usize = 31 + 320;
const SK_BUFF: usize = 256;

pub(crate) const SHUT_READ: u8 = 1;
pub(crate) const SHUT_WRITE: u8 = 2;

#[derive(Debug)]
pub(crate) struct Dgram {
    side: AtomicU8,
    stack: Lock<Option<(Arc<Attachment>, SockId)>>,
    is_realized: AtomicBool,
    is_refused: AtomicBool,
    /// The pending error of its refusal (`--strict`); 0 = none.
    refusal: AtomicI32,
    pub(crate) remote: Lock<Option<SocketAddr>>,
    shut: AtomicU8,
    wants_space: AtomicBool,
    pub(crate) turns: Turns,
    /// Control messages that are wanted, as [`RequestedControl`].
    requested: AtomicU32,
    pub(crate) datagram_flags: DatagramFlags,
    /// UDP_SEGMENT; 0 = off.
    segment: AtomicU16,
    /// SO_SNDBUF, as the kernel counts.
    sndbuf: AtomicU32,
    /// IP_MTU_DISCOVER and IPV6_MTU_DISCOVER.
    mtu_discovery: [AtomicU8; 2],
    /// IP_RECVERR or IPV6_RECVERR is on.
    wants_returned: AtomicBool,
    /// The program has peeked at the next datagram.
    is_peeked: AtomicBool,
    /// End of the latest empty datagram that was peeked at.
    found_empty: AtomicU64,
    /// The state that the process from which this one was forked left that way.
    pub(super) left: Lock<VecDeque<Left>>,
    has_left: AtomicBool,
    /// The state for a child that is being forked.
    handed: Lock<Option<Box<Left>>>,
    /// The socket's error that follows from its error queue; 0 = none.
    next_error: AtomicI32,
    /// Set if the socket was disconnected and has sent nothing since.
    has_no_port: AtomicBool,
    /// SO_ATTACH_FILTER.
    pub(super) filters: Filters,
    /// Held from a look at the record of options until they are applied.
    applying: Lock<()>,
    /// UDP_CORK and MSG_MORE.
    pub(crate) gathering: Gathering,
    /// Datagrams go to other processes that have the socket, as some were left unread here.
    is_yielding: AtomicBool,
}

impl Dgram {
    pub(crate) fn new(side: Side) -> Self {
        Dgram {
            side: AtomicU8::new(side as u8),
            stack: Lock::new(None),
            is_realized: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            refusal: AtomicI32::new(0),
            remote: Lock::new(None),
            shut: AtomicU8::new(0),
            wants_space: AtomicBool::new(false),
            turns: Turns::default(),
            requested: AtomicU32::new(0),
            datagram_flags: DatagramFlags::default(),
            segment: AtomicU16::new(0),
            sndbuf: AtomicU32::new(SNDBUF_DEFAULT),
            mtu_discovery: [
                AtomicU8::new(MtuDiscovery::Want.code()),
                AtomicU8::new(MtuDiscovery::Want.code()),
            ],
            wants_returned: AtomicBool::new(false),
            is_peeked: AtomicBool::new(false),
            found_empty: AtomicU64::new(0),
            left: Lock::default(),
            handed: Lock::new(None),
            has_left: AtomicBool::new(false),
            next_error: AtomicI32::new(0),
            has_no_port: AtomicBool::new(false),
            filters: Filters::default(),
            applying: Lock::default(),
            gathering: Gathering::new(),
            is_yielding: AtomicBool::new(false),
        }
    }

    /// Applies the options that are recorded now: of those of several threads the last ones stay.
    pub(crate) fn apply_now(&self, recorded: impl FnOnce() -> Options) {
        let _applying = self.applying.lock();
        self.apply(&recorded());
    }

    /// Applies the recorded options of a socket that no other thread has.
    pub(crate) fn apply(&self, options: &Options) {
        self.filters.set(filter_in(options), self.part().as_ref());
        let requested = RequestedControl::of(options).bits();
        self.requested.store(requested, Ordering::Relaxed);
        let is_on = |name| options.is_on(libc::SOL_SOCKET, name);
        self.datagram_flags
            .set(is_on(libc::SO_BROADCAST), is_on(libc::SO_DONTROUTE));
        let segment = options.int(libc::SOL_UDP, libc::UDP_SEGMENT).unwrap_or(0);
        let segment = u16::try_from(segment).unwrap_or(0);
        self.segment.store(segment, Ordering::Relaxed);
        let sndbuf = options.sndbuf().unwrap_or(SNDBUF_DEFAULT);
        self.sndbuf.store(sndbuf, Ordering::Relaxed);
        let is_corked = options.is_on(libc::SOL_UDP, libc::UDP_CORK);
        self.gathering.set_corked(is_corked);
        let wants_returned = options.is_on(libc::IPPROTO_IP, libc::IP_RECVERR)
            || options.is_on(libc::IPPROTO_IPV6, libc::IPV6_RECVERR);
        self.wants_returned.store(wants_returned, Ordering::Relaxed);
        for (place, is_v6) in self.mtu_discovery.iter().zip([false, true]) {
            place.store(options.mtu_discovery(is_v6).code(), Ordering::Relaxed);
        }
    }

    pub(crate) fn requested(&self) -> RequestedControl {
        RequestedControl::from_bits(self.requested.load(Ordering::Relaxed))
    }

    /// Returns the size into which a datagram is segmented, unless its control message says
    /// otherwise.
    pub(crate) fn segment(&self) -> u16 {
        self.segment.load(Ordering::Relaxed)
    }

    /// Longest payload that may go to `to`, by a link of `mtu` bytes.
    pub(crate) fn payload_max(&self, to: SocketAddr, mtu: u16) -> usize {
        let (headers, is_v6) = match to {
            SocketAddr::V4(_) => (28, 0),
            SocketAddr::V6(_) => (48, 1),
        };
        let discovery = self.mtu_discovery[is_v6].load(Ordering::Relaxed);
        if MtuDiscovery::from_code(discovery).is_some_and(MtuDiscovery::may_fragment) {
            return payload_longest(to);
        }
        usize::from(mtu).saturating_sub(headers)
    }

    /// Whether the fragments of a datagram find room. __ip_append_data() makes all of them before
    /// one leaves, the second and each later one only while less than twice the send buffer is
    /// taken.
    pub(crate) fn may_be_cut(&self, to: SocketAddr, len: usize, mtu: u16) -> bool {
        const UDP_HEADER: usize = 8;
        let headers = match to.ip().to_canonical() {
            IpAddr::V4(_) => 20,
            IpAddr::V6(_) => 48,
        };
        let mtu = usize::from(mtu);
        let each = (mtu.saturating_sub(headers) & !7).max(8);
        let before_last = (len + UDP_HEADER).div_ceil(each) - 1;
        let taken = before_last * ((mtu + PIECE_BESIDE).next_power_of_two() + SK_BUFF);
        taken < 2 * self.sndbuf.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn side(&self) -> Side {
        match self.side.load(Ordering::Acquire) {
            x if x == Side::Both as u8 => Side::Both,
            x if x == Side::Stack as u8 => Side::Stack,
            _ => Side::Kernel,
        }
    }

    pub(crate) fn set_side(&self, side: Side) {
        self.side.store(side as u8, Ordering::Release);
    }

    pub(crate) fn is_intent(&self) -> bool {
        !self.is_realized.load(Ordering::Acquire) && !self.is_refused.load(Ordering::Relaxed)
    }

    /// Whether an engine of this process serves it.
    pub(crate) fn is_served(&self) -> bool {
        self.side() != Side::Kernel && self.is_realized.load(Ordering::Acquire)
    }

    pub(crate) fn stack(&self) -> slipstack_mem::Guard<'_, Option<(Arc<Attachment>, SockId)>> {
        self.stack.lock()
    }

    pub(crate) fn set_realized(&self) {
        self.is_realized.store(true, Ordering::Release);
    }

    /// Detaches the socket from an engine that is gone; a wait that goes on, or the next use, finds
    /// another one. A connected socket reports this once as an error, because a datagram it waits
    /// for may have been lost.
    pub(crate) fn forget_stack(&self, dead: &Arc<Attachment>) {
        let is_connected = self.remote.lock().is_some();
        let mut stack = self.stack.lock();
        if stack
            .as_ref()
            .is_none_or(|(attachment, _)| !Arc::ptr_eq(attachment, dead))
        {
            return;
        }
        *stack = None;
        self.is_realized.store(false, Ordering::Release);
        // The next part's ring begins at 0.
        self.filters.reset();
        self.found_empty.store(0, Ordering::Relaxed);
        self.is_peeked.store(false, Ordering::Relaxed);
        // A socket left over by a failed exec goes on without an error.
        if is_connected && !dead.is_left() {
            self.next_error.store(Errno::ENETDOWN.0, Ordering::Release);
        }
    }

    pub(crate) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// Makes the next receive return the refusal, and the socket ready for it.
    pub(crate) fn tell_refusal(&self, error: Errno) {
        self.refusal.store(error.0, Ordering::Relaxed);
    }

    pub(crate) fn take_refusal(&self) -> Option<Errno> {
        Some(Errno(self.refusal.swap(0, Ordering::Relaxed))).filter(|error| error.0 != 0)
    }

    /// The stack's part, if it is used and there.
    pub(crate) fn part(&self) -> Option<(Arc<Attachment>, SockId)> {
        if self.side() == Side::Kernel || !self.is_realized.load(Ordering::Acquire) {
            return None;
        }
        self.stack.lock().clone()
    }

    /// The address that the stack has chosen for a connected socket.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        let (attachment, sock) = self.part()?;
        let is_connected = self.remote.lock().is_some();
        is_connected
            .then(|| attachment.program.local(sock))
            .flatten()
    }

    /// The port of the stack's part.
    pub(crate) fn stack_port(&self) -> Option<u16> {
        let (attachment, sock) = self.part()?;
        attachment.program.local(sock).map(|local| local.port())
    }

    pub(crate) fn has_no_port(&self) -> bool {
        self.has_no_port.load(Ordering::Relaxed)
    }

    pub(crate) fn give_port_back(&self) {
        self.has_no_port.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take_port(&self) {
        if self.has_no_port() {
            self.has_no_port.store(false, Ordering::Relaxed);
        }
    }

    /// `what`: [`SHUT_READ`] and [`SHUT_WRITE`].
    pub(crate) fn shutdown(&self, what: u8) {
        self.shut.fetch_or(what, Ordering::AcqRel);
    }

    pub(crate) fn is_shut_for_reading(&self) -> bool {
        self.shut.load(Ordering::Relaxed) & SHUT_READ != 0
    }

    pub(crate) fn is_shut_for_writing(&self) -> bool {
        self.shut.load(Ordering::Relaxed) & SHUT_WRITE != 0
    }

    /// Prepares for a fork: a datagram that was peeked at and left goes to the child with the
    /// socket, because the child may be the one to read it. Parent and child agree on which of them
    /// reads it, as on the kernel.
    pub(crate) fn copy_peeked(&self) {
        if self.has_left.load(Ordering::Relaxed) {
            let first = self.left.lock().front().cloned();
            *self.handed.lock() = first.map(Box::new);
            return;
        }
        let found = self
            .part()
            .filter(|_| self.is_peeked.load(Ordering::Relaxed));
        let Some((attachment, sock)) = found else {
            return;
        };
        let mut bytes = vec![0; attachment.program.udp_next_len(sock).unwrap_or(0)];
        let datagram = attachment
            .program
            .udp_recv(sock, &mut [IoSliceMut::new(&mut bytes)], true);
        *self.handed.lock() = datagram.map(|datagram| Box::new(Left { bytes, datagram }));
    }

    pub(crate) fn take_handed(&self) -> Option<Box<Left>> {
        self.handed.try_lock()?.take()
    }

    /// Returns left datagrams to the socket in the child, or in the process that has taken it over.
    pub(crate) fn give_left(&self, left: impl IntoIterator<Item = Left>) {
        let mut all = self.left.lock();
        all.extend(left);
        self.has_left.store(!all.is_empty(), Ordering::Relaxed);
    }

    #[cold]
    fn recv_left(&self, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Option<Datagram> {
        let mut place = self.left.lock();
        let Left { bytes, datagram } = place.front()?;
        let found = Datagram {
            len: copy(bytes, bufs),
            ..*datagram
        };
        if !peek {
            place.pop_front();
            self.has_left.store(!place.is_empty(), Ordering::Relaxed);
        }
        Some(found)
    }

    /// The next datagram of the stack's, or an error that was reported for one sent.
    pub(crate) fn recv(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Option<Datagram>, Errno> {
        if self.has_left.load(Ordering::Relaxed)
            && let Some(left) = self.recv_left(bufs, peek)
        {
            return Ok(Some(left));
        }
        let Some((attachment, sock)) = self.part() else {
            return self.take_error_without_part().map_or(Ok(None), Err);
        };
        if let Some(error) = self.take_error_of(&attachment, sock) {
            return Err(error);
        }
        let found = match self.filters.is_on() {
            true => self.filters.recv(&attachment, sock, bufs, peek),
            false => attachment.program.udp_recv(sock, bufs, peek),
        };
        self.is_peeked
            .store(peek && found.is_some(), Ordering::Relaxed);
        Ok(found)
    }

    /// The part on the stack, if nothing but its own datagrams is to be had: no error, none that
    /// were left before a move, and no filter that drops some.
    pub(crate) fn plain_part(&self) -> Option<(Arc<Attachment>, SockId)> {
        let has_more = self.has_left.load(Ordering::Relaxed) || self.filters.is_on();
        let (attachment, sock) = self.part().filter(|_| !has_more)?;
        let has_error = attachment.seen(sock).is_error() || self.has_next_error();
        (!has_error).then_some((attachment, sock))
    }

    /// SO_PEEK_OFF: as a peek of [`Dgram::recv`]; also returns how many bytes of the datagram
    /// precede the copied ones.
    #[cold]
    pub(crate) fn peek_at(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        mut skip: usize,
    ) -> Result<Option<(Datagram, usize)>, Errno> {
        if self.has_left.load(Ordering::Relaxed)
            && let Some(found) = self.peek_left(bufs, &mut skip)
        {
            return Ok(Some(found));
        }
        let Some((attachment, sock)) = self.part() else {
            return self.take_error_without_part().map_or(Ok(None), Err);
        };
        if let Some(error) = self.take_error_of(&attachment, sock) {
            return Err(error);
        }
        if self.filters.is_on() && self.filters.vet(&attachment, sock).is_none() {
            return Ok(None);
        }
        Ok(attachment
            .program
            .udp_peek_at(sock, bufs, skip, &self.found_empty))
    }

    /// Length of the next datagram of the stack's.
    pub(crate) fn next_len(&self) -> Option<usize> {
        if let Some(left) = self.left.lock().front() {
            return Some(left.bytes.len());
        }
        let (attachment, sock) = self.part()?;
        match self.filters.is_on() {
            true => self.filters.vet(&attachment, sock),
            false => attachment.program.udp_next_len(sock),
        }
    }

    /// Sends on the stack; `Ok(None)` if there is no room.
    pub(crate) fn send(
        &self,
        envelope: &Envelope,
        bufs: &[IoSlice<'_>],
    ) -> Result<Option<usize>, Errno> {
        let (attachment, sock) = self.part().ok_or(Errno::ENETDOWN)?;
        self.send_on(&attachment, sock, envelope, bufs)
    }

    /// As [`Dgram::send`], on the stack's part.
    pub(crate) fn send_on(
        &self,
        attachment: &Attachment,
        sock: SockId,
        envelope: &Envelope,
        bufs: &[IoSlice<'_>],
    ) -> Result<Option<usize>, Errno> {
        self.may_send_on(attachment, sock)?;
        self.push_on(attachment, sock, envelope, bufs)
    }

    /// Returns the error of a datagram in progress.
    pub(crate) fn may_send(&self) -> Result<(), Errno> {
        let (attachment, sock) = self.part().ok_or(Errno::ENETDOWN)?;
        self.may_send_on(&attachment, sock)
    }

    fn may_send_on(&self, attachment: &Attachment, sock: SockId) -> Result<(), Errno> {
        if let Some(error) = self.take_error_of(attachment, sock) {
            return Err(error);
        }
        // sock_alloc_send_pskb(): every other error comes first.
        match self.is_shut_for_writing() {
            true => Err(Errno::EPIPE),
            false => Ok(()),
        }
    }

    /// As [`Dgram::send`], for a datagram whose pending errors have been reported.
    pub(crate) fn push(
        &self,
        envelope: &Envelope,
        bufs: &[IoSlice<'_>],
    ) -> Result<Option<usize>, Errno> {
        let (attachment, sock) = self.part().ok_or(Errno::ENETDOWN)?;
        self.push_on(&attachment, sock, envelope, bufs)
    }

    fn push_on(
        &self,
        attachment: &Attachment,
        sock: SockId,
        envelope: &Envelope,
        bufs: &[IoSlice<'_>],
    ) -> Result<Option<usize>, Errno> {
        if let Some(sent) = attachment.udp_send(sock, envelope, bufs)? {
            return Ok(Some(sent));
        }
        self.wants_space.store(true, Ordering::SeqCst);
        // Another thread may have taken the event of new room before that was set.
        attachment.udp_send(sock, envelope, bufs)
    }

    /// Returns whether a send has found no room, and there is too little still.
    /// Then an event comes with the room.
    pub(crate) fn awaits_room(&self) -> bool {
        self.wants_space.load(Ordering::SeqCst)
            && self
                .part()
                .is_some_and(|(attachment, sock)| !attachment.program.is_writable(sock))
    }

    /// datagram_poll() for the stack's part.
    pub(crate) fn readiness(&self) -> u32 {
        let mut ready = shut_bits(self.shut.load(Ordering::Relaxed));
        if self.has_left.load(Ordering::Relaxed) {
            ready |= bits::IN;
        }
        let Some((attachment, sock)) = self.part() else {
            if self.side() == Side::Stack {
                ready |= bits::OUT;
            }
            if self.refusal.load(Ordering::Relaxed) != 0 {
                ready |= bits::IN | bits::ERR;
            }
            if self.has_next_error() {
                ready |= bits::ERR;
            }
            return ready;
        };
        if attachment.seen(sock).is_error()
            || attachment.program.has_returned(sock)
            || self.has_next_error()
        {
            ready |= bits::ERR;
        }
        if attachment.program.rx_available(sock) > 0
            && (!self.filters.is_on() || self.filters.vet(&attachment, sock).is_some())
        {
            ready |= bits::IN;
        }
        if self.side() == Side::Stack && !self.awaits_room() {
            ready |= bits::OUT;
        }
        ready
    }

    pub(crate) fn edges(&self) -> u32 {
        let ready = self.readiness() & !bits::OUT;
        let has_room_again = self.wants_space.load(Ordering::SeqCst)
            && !self.awaits_room()
            && self.wants_space.swap(false, Ordering::SeqCst);
        // A thread may wait for the stack's room even where the kernel's part answers for room.
        match has_room_again {
            true => ready | bits::OUT,
            false => ready,
        }
    }

    /// connect(AF_UNSPEC). `is_wildcard`: the socket is bound to all addresses. Returns `Kernel` if
    /// the kernel's part has to be disconnected too.
    pub(crate) fn disconnect(&self, is_wildcard: bool) -> Outcome<()> {
        *self.remote.lock() = None;
        self.gathering.on_connect(None);
        if self.side() == Side::Kernel {
            self.set_side(Side::Both);
            return Err(Divert::Kernel);
        }
        if let Some((attachment, sock)) = self.part() {
            attachment.udp_connect(sock, None)?;
        }
        self.give_port_back();
        if is_wildcard {
            self.set_side(Side::Both);
        }
        Ok(())
    }
}

/// Returns the event bits of [`SHUT_READ`] and [`SHUT_WRITE`].
pub(crate) fn shut_bits(what: u8) -> u32 {
    match what {
        0 | SHUT_WRITE => 0,
        SHUT_READ => bits::IN | bits::RDHUP,
        _ => bits::IN | bits::RDHUP | bits::HUP,
    }
}

/// Longest payload that the length fields of headers allow.
pub(crate) const fn payload_longest(to: SocketAddr) -> usize {
    match to {
        SocketAddr::V4(_) => 65_507,
        SocketAddr::V6(_) => 65_527,
    }
}
