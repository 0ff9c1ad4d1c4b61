//! Sending datagrams: by the stack or by the kernel's part of the socket.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use slipstack_channel::Envelope;

use crate::addr::{Family, Given, is_link_local, parse_destination};
use crate::calls::connect::check_ways;
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::network::Network;
use crate::process::report::{Given as Placed, Reason};
use crate::process::subject::Subject;
use crate::process::wait::{Plan, polled};
use crate::socket::ancillary::{Sending, parse as parse_control};
use crate::socket::description::{Decided, Description};
use crate::socket::kernel_socket::is_ready;
use crate::socket::options::class;
use crate::socket::{Begun, Dgram, QueuedMessage, Side, payload_longest};

const UDP_LEN: usize = 8;
/// A payload that fits any packet.
pub(super) const DATAGRAM_SURE: usize = 508;
/// Datagrams that one call sends at most (Linux's UDP_MAX_SEGMENTS).
const SEGMENTS_MAX: usize = 128;
/// Priorities that every program may set (sk_set_prio_allowed()).
const FREE_PRIORITIES: std::ops::RangeInclusive<i32> = 0..=6;

/// Destination of a datagram.
#[derive(Clone, Copy)]
pub(super) struct Destination {
    pub(super) addr: SocketAddr,
    /// The call names it; otherwise it is the peer that the socket is connected to.
    pub(super) is_named: bool,
}

impl Destination {
    /// Returns the destination `to`, or else the socket's peer.
    pub(super) fn of(dgram: &Dgram, to: Option<SocketAddr>) -> Result<Destination, Errno> {
        let addr = to.or(*dgram.remote.lock()).ok_or(Errno::EDESTADDRREQ)?;
        Ok(Destination {
            addr,
            is_named: to.is_some(),
        })
    }

    pub(super) fn check(
        self,
        network: &Network,
        socket: &Description,
        is_direct: bool,
    ) -> Result<(), Errno> {
        if self.is_named {
            check_ways(socket, self.addr)?;
        }
        if is_direct {
            network.check_link(self.addr)?;
        }
        Ok(())
    }
}

impl Process {
    pub(super) fn send_dgram(
        &self,
        socket: &Arc<Description>,
        dgram: &Dgram,
        bufs: &[IoSlice<'_>],
        (to, control): (Option<&[u8]>, &[u8]),
        flags: i32,
    ) -> Outcome<usize> {
        // inet_send_prepare(): whatever the result.
        dgram.take_port();
        let is_urgent = flags & libc::MSG_OOB != 0;
        if is_urgent && socket.family == Family::V4 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if dgram.gathering.is_begun()
            && let Some(sent) = self.send_piece(socket, dgram, bufs, to, flags)?
        {
            return Ok(sent);
        }
        let is_more = flags & libc::MSG_MORE != 0 || dgram.gathering.is_corked();
        let to = destination(to, socket.family)?.map(|to| self.network.zoned_to(socket, to));
        let mut sending = parse_control(control, socket.family)?;
        if let Some(src) = sending.src.filter(|src| is_link_local(*src)) {
            sending.src = Some(self.network.zoned_source(src, sending.interface));
        }
        let is_foreign = |src| !self.network.is_own(SocketAddr::new(src, 0));
        let why_kernel = match (dgram.side(), to) {
            // Permitted when it was connected.
            (Side::Kernel, None) => Some(Reason::Loopback),
            (Side::Both, _) if sending.src.is_some_and(is_foreign) => Some(Reason::LocalAddress),
            (_, Some(to)) => self.network.reason_to_connect_in_kernel(socket, to),
            (Side::Both | Side::Stack, None) => None,
        };
        if let Some(why) = why_kernel {
            let given = to.map_or(Placed::Nothing, Placed::Remote);
            self.permit_kernel(socket, given, why, Errno::ENETUNREACH)?;
            if dgram.is_shut_for_writing() {
                return Err(Errno::EPIPE.into());
            }
            let waits = is_more && dgram.side() == Side::Both;
            dgram.gathering.set_on_kernel(waits);
            return self.send_by_kernel(socket, dgram, flags);
        }
        let destination = Destination::of(dgram, to)?;
        // udpv6_sendmsg() ignores it.
        if is_urgent && destination.addr.ip().to_canonical().is_ipv4() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let is_direct = dgram.datagram_flags.is_direct() || flags & libc::MSG_DONTROUTE != 0;
        destination.check(&self.network, socket, is_direct)?;
        let envelope = self
            .envelope(dgram, destination, &sending, bufs, is_more)
            .inspect_err(|error| {
                let what = (destination, segment_of(&sending, dgram), total(bufs));
                tell_too_long(&self.network, socket, *error, what);
            })?;
        if is_more {
            let begun = Begun {
                bytes: Vec::new(),
                envelope,
                remote: destination.addr,
            };
            return self.begin_datagram(socket, dgram, bufs, begun);
        }
        let sent = self.send_by_stack(socket, dgram, bufs, &envelope, flags)?;
        if socket.error_queue.on_left(sending.stamps, system_time) {
            socket.notify(socket.error_queue.bits());
        }
        Ok(sent)
    }

    /// Returns the envelope of a datagram, once everything is found to be right.
    pub(super) fn envelope(
        &self,
        dgram: &Dgram,
        destination: Destination,
        sending: &Sending,
        bufs: &[IoSlice<'_>],
        is_more: bool,
    ) -> Result<Envelope, Errno> {
        let remote = destination.addr;
        self.network.may_broadcast(dgram, remote)?;
        let (len, segment) = (total(bufs), segment_of(sending, dgram));
        if is_more && segment != 0 {
            // The total is checked when it leaves.
            if len > payload_longest(remote) {
                return Err(Errno::EMSGSIZE);
            }
        } else if len > DATAGRAM_SURE || segment != 0 {
            check_length(&self.network, dgram, remote, len, usize::from(segment))?;
            if sending.is_whole && segment == 0 {
                let mtu = usize::from(self.network.mtu_to(remote.ip()));
                if len > mtu.saturating_sub(overhead(remote)) {
                    return Err(Errno::EMSGSIZE);
                }
            }
        }
        let is_strange = |src: IpAddr| {
            src.is_ipv4() != remote.ip().to_canonical().is_ipv4()
                || !self.network.is_own(SocketAddr::new(src, 0))
        };
        match sending.src {
            Some(IpAddr::V4(src)) if is_strange(src.into()) => return Err(Errno::ENETUNREACH),
            Some(src) if is_strange(src) => return Err(Errno::EINVAL),
            _ => {}
        }
        Ok(Envelope {
            peer: destination.is_named.then_some(remote),
            local: sending.src.map(|src| SocketAddr::new(src, 0)),
            tos: sending.tos,
            ttl: sending.ttl,
            segment: NonZeroU16::new(segment),
            link: match sending.interface {
                0 => None,
                index => self.network.link_of_interface(index),
            },
            mark: match sending.mark {
                Some(mark) => {
                    self.may_set(libc::SO_MARK, mark)?;
                    Some(mark)
                }
                None => None,
            },
            class: match (sending.priority, sending.tos) {
                (Some(priority), _) => {
                    if !FREE_PRIORITIES.contains(&priority) {
                        self.may_set(libc::SO_PRIORITY, priority.cast_unsigned())?;
                    }
                    Some(class(priority))
                }
                (None, Some(_)) if remote.ip().to_canonical().is_ipv4() => Some(0),
                (None, _) => None,
            },
            ..Envelope::default()
        })
    }

    /// Checks whether a datagram may have a mark or priority: __sock_cmsg_send() makes the check of
    /// setsockopt(), so that a kernel socket can answer.
    #[cold]
    fn may_set(&self, name: i32, value: u32) -> Result<(), Errno> {
        let level = libc::SOL_SOCKET;
        let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
        let make = || rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
        let judge = self.numbers.with_spare(make)?;
        let is_set = self
            .kernel
            .setsockopt(judge.as_raw_fd(), level, name, &value.to_ne_bytes());
        drop(judge);
        self.numbers.keep_spare();
        is_set
    }

    pub(super) fn send_by_kernel(
        &self,
        socket: &Arc<Description>,
        dgram: &Dgram,
        flags: i32,
    ) -> Outcome<usize> {
        let number = socket.kernel_number();
        if dgram.side() == Side::Stack || number.is_none() {
            return Err(Errno::ENETUNREACH.into());
        }
        if socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0 {
            return Err(Divert::Kernel);
        }
        if is_ready(number, PollFlags::OUT) {
            return Err(Divert::KernelFirst);
        }
        let fd = polled(number, libc::POLLOUT);
        let plan = Plan {
            subject: Subject::Socket(socket),
            kernel: fd.as_slice(),
            deadline_ns: None,
            mask: None,
            may_restart: true,
            ends_when_stopped: false,
            is_part: false,
        };
        self.wait(
            &plan,
            |_| Ok(is_ready(number, PollFlags::OUT).then_some(())),
        )?;
        Err(Divert::KernelFirst)
    }

    fn send_by_stack(
        &self,
        socket: &Arc<Description>,
        dgram: &Dgram,
        bufs: &[IoSlice<'_>],
        envelope: &Envelope,
        flags: i32,
    ) -> Outcome<usize> {
        self.prepare_to_send(socket, dgram, envelope.peer)?;
        let (attachment, sock) = dgram.part().ok_or(Errno::ENETDOWN)?;
        if let Some(sent) = dgram.send_on(&attachment, sock, envelope, bufs)? {
            attachment.after_datagrams(&*self.kernel, (socket.id, sock), 1);
            return Ok(sent);
        }
        attachment.turn(self.kernel.now_ns());
        self.living_attachment();
        if socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0 {
            return dgram.send(envelope, bufs)?.ok_or(Errno::EAGAIN.into());
        }
        let plan = Plan::of_call(&*self.kernel, socket, &socket.send_timeout_ns, &[]);
        let sent = self.wait(&plan, |_| Ok(dgram.send(envelope, bufs)?))?;
        if let Some((attachment, _)) = dgram.part() {
            attachment.commands();
        }
        sent.ok_or(Errno::EAGAIN.into())
    }

    /// Returns the socket's part on the stack, after processing received errors.
    pub(super) fn prepare_to_send(
        &self,
        socket: &Arc<Description>,
        dgram: &Dgram,
        to: Option<SocketAddr>,
    ) -> Result<(), Errno> {
        if self.has_intents.load(Ordering::Relaxed) {
            let to = to.or_else(|| *dgram.remote.lock());
            if to.is_some_and(|to| self.network.is_own(to)) {
                self.realize_all();
            }
        }
        if let Some((attachment, _)) = dgram.part()
            && !attachment.has_ticker()
        {
            // A thread that only sends makes no other turn, and its instance may have ended.
            self.turn_if_idle(&attachment);
        }
        if dgram.is_intent() {
            self.realize_dgram(socket, dgram)?;
        }
        self.bring_errors(dgram);
        Ok(())
    }

    pub(super) fn send_unbound(
        &self,
        socket: &Arc<Description>,
        bufs: &[IoSlice<'_>],
        (to, control): (&[u8], &[u8]),
        flags: i32,
    ) -> Outcome<usize> {
        match parse_destination(to, socket.family)? {
            Given::Other => return Err(Errno::EAFNOSUPPORT.into()),
            Given::Unspecified => return Err(Errno::EDESTADDRREQ.into()),
            Given::Addr(_) => self.bind_dgram_anywhere(socket)?,
        }
        match socket.decided() {
            Some(Decided::Dgram(dgram)) => {
                self.send_dgram(socket, dgram, bufs, (Some(to), control), flags)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }
}

/// Returns the destination of a datagram that does not go to its socket's peer.
pub(super) fn destination(to: Option<&[u8]>, family: Family) -> Result<Option<SocketAddr>, Errno> {
    match to.map(|to| parse_destination(to, family)).transpose()? {
        Some(Given::Addr(addr)) if addr.port() == 0 => Err(Errno::EINVAL),
        Some(Given::Addr(addr)) => Ok(Some(addr)),
        Some(Given::Other) => Err(Errno::EAFNOSUPPORT),
        Some(Given::Unspecified) | None => Ok(None),
    }
}

pub(super) fn total(bufs: &[IoSlice<'_>]) -> usize {
    bufs.iter().map(|buf| buf.len()).sum()
}

/// Returns the length of the datagrams that one is to be cut into; 0 = it is one.
fn segment_of(sending: &Sending, dgram: &Dgram) -> u16 {
    sending.segment.unwrap_or_else(|| dgram.segment())
}

pub(super) fn system_time() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Bytes of headers around a payload.
fn overhead(remote: SocketAddr) -> usize {
    match remote.ip().to_canonical() {
        IpAddr::V4(_) => 20 + UDP_LEN,
        IpAddr::V6(_) => 40 + UDP_LEN,
    }
}

/// udp_send_skb(): `room` is the largest payload of one datagram.
fn check_segments(len: usize, segment: usize, room: usize) -> Result<(), Errno> {
    if segment.min(len) > room {
        return Err(Errno::EMSGSIZE);
    }
    if len > segment * SEGMENTS_MAX {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// IP_RECVERR: ip_local_error() and ipv6_local_error(). udp_send_skb() refuses a datagram that is
/// to be cut without a word.
#[cold]
pub(super) fn tell_too_long(
    network: &Network,
    socket: &Description,
    error: Errno,
    (destination, segment, len): (Destination, u16, usize),
) {
    let remote = destination.addr;
    let is_v4 = remote.ip().to_canonical().is_ipv4();
    let (level, name) = match is_v4 {
        true => (libc::IPPROTO_IP, libc::IP_RECVERR),
        false => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    let is_wanted = socket.cold.lock().options.is_on(level, name);
    let is_told = is_wanted && segment == 0;
    if error != Errno::EMSGSIZE || !is_told || len > payload_longest(remote) {
        return;
    }
    // Over IPv4 the reported port is that of the connection.
    let port = match is_v4 && destination.is_named {
        true => socket.connected_port(),
        false => remote.port(),
    };
    socket.error_queue.push(QueuedMessage::TooLong {
        to: SocketAddr::new(remote.ip(), port),
        mtu: network.mtu_to(remote.ip()).into(),
    });
    socket.notify(socket.error_queue.bits());
}

fn check_fit(
    network: &Network,
    dgram: &Dgram,
    remote: SocketAddr,
    len: usize,
    segment: usize,
) -> Result<(), Errno> {
    let mtu = network.mtu_to(remote.ip());
    let len_max = match segment {
        0 => dgram.payload_max(remote, mtu),
        _ => payload_longest(remote),
    };
    if len > len_max {
        return Err(Errno::EMSGSIZE);
    }
    let room = usize::from(mtu).saturating_sub(overhead(remote));
    if segment != 0 {
        return check_segments(len, segment, room);
    }
    // The kernel does not fragment datagrams to its own addresses.
    if len > room && !network.is_own(remote) && !dgram.may_be_cut(remote, len, mtu) {
        return Err(Errno::ENOBUFS);
    }
    Ok(())
}

/// Checks the length against the link. The path's limit is known to the engine: EMSGSIZE
/// because of it comes with the next call.
#[cold]
pub(crate) fn check_length(
    network: &Network,
    dgram: &Dgram,
    remote: SocketAddr,
    len: usize,
    segment: usize,
) -> Result<(), Errno> {
    match check_fit(network, dgram, remote, len, segment) {
        Err(Errno::EMSGSIZE) if len <= payload_longest(remote) && network.has_other_mtu() => {
            check_fit(network, dgram, remote, len, segment)
        }
        outcome => outcome,
    }
}
