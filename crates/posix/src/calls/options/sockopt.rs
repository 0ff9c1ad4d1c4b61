//! getsockopt and setsockopt.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::net::SocketFlags;
use slipstack_channel::Congestion;

use crate::addr::Family;
use crate::calls::name::show_deferral;
use crate::calls::options::memory::figures_of;
use crate::calls::options::stamping::{is_stamping, requested_messages, stamping_value};
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::reuse::give_port_of_ended_back;
use crate::socket::ancillary::TIMESTAMPING_NEW;
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::options::attaching::{
    ATTACH, CHOOSE, CHOOSE_EXTENDED, DETACH, UNCHOOSE, chooser_of, chooser_value, read_filter,
};
use crate::socket::options::meaning::{CONGESTION_NAME_MAX, congestion};
use crate::socket::options::push_chooser;
use crate::socket::options::record::int_of;
use crate::socket::options::set_on_stream;
use crate::socket::options::timeouts::{RCVTIMEO_NEW, SNDTIMEO_NEW, set_timeout};
use crate::socket::options::{Options, tcp_info};
use crate::socket::{Dgram, Side, Stream};

/// Missing in libc (linux/in6.h).
const IPV6_PATHMTU: i32 = 61;

impl Process {
    /// `setsockopt`.
    pub fn setsockopt(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Outcome<()> {
        let socket = self.table.socket_of(fd)?;
        self.learn_options(&socket);
        self.network.check_option(&socket, level, name, value)?;
        if let Some(set) = self.set_elsewhere(&socket, (level, name), value) {
            return Ok(set?);
        }
        if self.network.set_membership(&socket, level, name, value)? {
            self.realize_bound(&socket);
            return Ok(());
        }
        if self
            .network
            .choose_way(&*self.kernel, &socket, (level, name), value)?
        {
            return Ok(());
        }
        if (level, name) == CHOOSE_EXTENDED && self.network.runs_program(&socket) {
            return Ok(self.choose_extended(&socket, value)?);
        }
        let code = match (level, name) {
            ATTACH => self.network.filter_for(&socket, self.program_of(value)?)?,
            CHOOSE => {
                let code = self.program_of(value)?;
                chooser_of(
                    &code,
                    self.network.runs_program(&socket),
                    self.kernel.now_ns(),
                )?
            }
            UNCHOOSE => chooser_value(&[], self.kernel.now_ns()),
            _ => Vec::new(),
        };
        match (level, name) {
            ATTACH | DETACH => self.put_filter(&socket, (level, name), value, &code)?,
            _ => self.put_to_kernel(&socket, level, name, value)?,
        }
        let options = {
            let mut cold = socket.cold.lock();
            match (level, name) {
                ATTACH | DETACH => {}
                CHOOSE | UNCHOOSE => cold.options.set(CHOOSE.0, CHOOSE.1, &code),
                _ => cold.options.set(level, name, value),
            }
            cold.options.clone()
        };
        self.network.note_leaving(&socket, level, name, value);
        note_beside(&socket, (level, name), value, &options)?;
        match socket.decided() {
            Some(Decided::Stream(stream)) => {
                set_on_stream(&*self.kernel, (&socket, stream), level, name, &options);
            }
            Some(Decided::Dgram(it)) => self.set_on_dgram((&socket, it), level, name, &options),
            Some(Decided::Listener(listener)) => {
                if let (Some((attachment, sock)), Some(option)) =
                    (&*listener.stack(), options.for_stack(level, name))
                {
                    attachment.set_option(*sock, option);
                }
                if (level, name) == (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) {
                    show_deferral(&*self.kernel, &socket);
                }
            }
            Some(Decided::Foreign(it)) => {
                self.set_where_it_lives((&socket, it), (level, name), value)?;
            }
            None => {}
        }
        Ok(())
    }

    /// The instructions of a program of classic BPF.
    #[cold]
    pub(super) fn program_of(&self, value: &[u8]) -> Result<Vec<u8>, Errno> {
        let code = read_filter(&*self.kernel, value)?;
        self.numbers.keep_spare();
        Ok(code)
    }

    /// The kernel's part has the option too, and judges it.
    fn put_to_kernel(
        &self,
        socket: &Description,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<(), Errno> {
        if self.network.is_stacks_interface(level, name, value) {
            // The kernel may have no such interface.
            return Ok(());
        }
        if (level, name) == (libc::IPPROTO_TCP, libc::TCP_CONGESTION) && socket.kind == Kind::Stream
        {
            return self.set_congestion(socket, value);
        }
        if is_stamping(level, name)
            && matches!(socket.decided(), Some(Decided::Stream(_)))
            && let Some(flags) = int_of(value)
        {
            return self.judge_stamping(socket, (level, name), flags);
        }
        if !is_plain(socket.kind, level, name, value) {
            return self.try_on_kernel(socket, level, name, value);
        }
        if let (libc::SOL_SOCKET, libc::SO_PEEK_OFF) = (level, name)
            && let Some(Decided::Foreign(it)) = socket.decided()
        {
            it.end_counting(&*self.kernel, socket);
        }
        if let Some(number) = socket.kernel_number() {
            let set = self.kernel.setsockopt(number.number(), level, name, value);
            // A borrowed connection's kernel socket has no TCP.
            if !matches!(socket.decided(), Some(Decided::Foreign(_))) {
                set?;
            }
        }
        Ok(())
    }

    pub(crate) fn set_on_dgram(
        &self,
        (socket, dgram): (&Arc<Description>, &Dgram),
        level: i32,
        name: i32,
        options: &Options,
    ) {
        if is_return(level, name) {
            self.bring_errors(dgram);
        }
        if let (ATTACH | DETACH, Some((attachment, _))) = ((level, name), dgram.part()) {
            // Datagrams that have already arrived are not filtered.
            attachment.turn(self.kernel.now_ns());
            if dgram.side() == Side::Both {
                self.spare_kernel_groups(socket);
            }
        }
        if let (Some((attachment, sock)), Some(option)) =
            (dgram.part(), options.for_stack(level, name))
        {
            if attachment.program.tx_unsent(sock) > 0 {
                // Datagrams that have not left yet keep the value they were sent with.
                let _ = attachment.info(sock);
            }
            attachment.set_option(sock, option);
        }
        if let (CHOOSE | UNCHOOSE, Some((attachment, sock))) = ((level, name), dgram.part()) {
            push_chooser(&attachment, sock, options);
            attachment.turn(self.kernel.now_ns());
        }
        dgram.apply_now(|| socket.cold.lock().options.clone());
        if is_return(level, name) && !options.is_on(level, name) {
            dgram.forget_returned();
        }
        if (level, name) == (libc::SOL_UDP, libc::UDP_CORK) && !dgram.gathering.is_corked() {
            self.uncork(socket, dgram);
        }
    }

    /// Is there such an algorithm, on the side that the socket is on or may come to?
    fn set_congestion(&self, socket: &Description, value: &[u8]) -> Result<(), Errno> {
        if value.is_empty() {
            return Err(Errno::EINVAL);
        }
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
        let is_ours = congestion(value).is_some();
        let on_kernel = self.try_on_kernel(socket, level, name, value);
        match socket.decided() {
            Some(Decided::Stream(_)) if is_ours => Ok(()),
            Some(Decided::Stream(_)) => Err(Errno::ENOENT),
            // The kernel's part of a listener may lack an algorithm that the stack has.
            _ if is_ours => Ok(()),
            _ => on_kernel,
        }
    }

    /// Lets the kernel judge an option: on the socket's own kernel part, or on one made for the
    /// moment.
    pub(super) fn try_on_kernel(
        &self,
        socket: &Description,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<(), Errno> {
        match judge_of(socket, level) {
            Some(number) => self.kernel.setsockopt(number.number(), level, name, value),
            // A confined process (seccomp) may not make a socket.
            None if self.lending.keeps_out.load(Ordering::Relaxed)
                && matches!(socket.decided(), Some(Decided::Foreign(_))) =>
            {
                Ok(())
            }
            None => {
                let twin = self.kernel_twin(socket, SocketFlags::empty())?;
                let set = self.kernel.setsockopt(twin.as_raw_fd(), level, name, value);
                drop(twin);
                self.numbers.keep_spare();
                set
            }
        }
    }

    /// `getsockopt`: the value goes to the front of `value`; returns its length. A length beyond
    /// `value` is that which TCP_SAVED_SYN needs, and nothing is written: the caller stores it and
    /// fails with EINVAL.
    pub fn getsockopt(&self, fd: i32, level: i32, name: i32, value: &mut [u8]) -> Outcome<usize> {
        let socket = self.table.socket_of(fd)?;
        self.learn_options(&socket);
        let own = self.own_int(&socket, level, name)?;
        if let Some(own) = own {
            return Ok(put(value, &own.to_ne_bytes()));
        }
        if (level, name) == (libc::IPPROTO_TCP, libc::TCP_CONGESTION)
            && let Some(kind) = congestion_of(&socket)?
        {
            let mut padded = [0; CONGESTION_NAME_MAX];
            padded[..kind.name().len()].copy_from_slice(kind.name().as_bytes());
            return Ok(put(value, &padded));
        }
        if let Some(Decided::Stream(stream)) = socket.decided()
            && !stream.is_ended()
        {
            match (level, name) {
                (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                    let info = stream.info()?;
                    let rate_max = socket.cold.lock().options.pacing_rate_max();
                    return Ok(tcp_info::write(&info, rate_max, value));
                }
                (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                    let info = stream.info()?;
                    let mss = i32::try_from(info.snd_mss).unwrap_or(i32::MAX);
                    return Ok(put(value, &mss.to_ne_bytes()));
                }
                _ => {}
            }
            let size = |name| self.buffer_size(fd, name);
            if let Some(len) = figures_of((&socket, stream), (level, name), value, size)? {
                return Ok(len);
            }
        }
        let is_v6 = socket.family == Family::V6;
        if ((level, name) == (libc::IPPROTO_IP, libc::IP_MTU)
            || is_v6 && (level, name) == (libc::IPPROTO_IPV6, libc::IPV6_MTU))
            && let Some(mtu) = path_mtu_of(&socket)?
        {
            return Ok(put(value, &mtu.to_ne_bytes()));
        }
        if is_v6
            && (level, name) == (libc::IPPROTO_IPV6, IPV6_PATHMTU)
            && let Some(mtu) = path_mtu_of(&socket)?
        {
            // struct ip6_mtuinfo, whose address is that of an error only.
            let mut info = [0; 32];
            if value.len() < info.len() {
                return Err(Errno::EINVAL.into());
            }
            info[28..].copy_from_slice(&mtu.to_ne_bytes());
            return Ok(put(value, &info));
        }
        if let Some(word) = self.network.leaving_by(&socket, level, name) {
            return Ok(put(value, &word));
        }
        if let Some(len) = self.own_to_socket(fd, &socket, (level, name), value)? {
            return Ok(len);
        }
        self.ask_kernel(&socket, level, name, value)
    }

    /// The value of SO_SNDBUF or SO_RCVBUF.
    fn buffer_size(&self, fd: i32, name: i32) -> Outcome<u32> {
        let mut value = [0; 4];
        self.getsockopt(fd, libc::SOL_SOCKET, name, &mut value)?;
        Ok(u32::from_ne_bytes(value))
    }

    /// A value of an int that the kernel's part does not know, or has for another purpose.
    fn own_int(&self, socket: &Arc<Description>, level: i32, name: i32) -> Outcome<Option<i32>> {
        Ok(match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                Some(self.take_error(socket)?.map_or(0, |error| error.0))
            }
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => Some(i32::from(matches!(
                socket.decided(),
                Some(Decided::Listener(_))
            ))),
            (libc::SOL_SOCKET, libc::SO_TYPE) => Some(match socket.kind {
                Kind::Stream => libc::SOCK_STREAM,
                Kind::Dgram => libc::SOCK_DGRAM,
            }),
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => Some(socket.family.number()),
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => Some(match socket.kind {
                Kind::Stream => libc::IPPROTO_TCP,
                Kind::Dgram => libc::IPPROTO_UDP,
            }),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK)
                if socket.kind == Kind::Stream =>
            {
                Some(i32::from(socket.cold.lock().options.is_on(level, name)))
            }
            (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => {
                self.learn_of_borrowed(socket);
                peek_offset(socket)
            }
            // The kernel's part has these for our own purposes.
            (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP) if socket.kind == Kind::Stream => {
                let set = socket.cold.lock().options.int(level, name);
                Some(i32::from(set != Some(0)))
            }
            (libc::IPPROTO_IP, libc::IP_FREEBIND) if self.network.policy().is_some() => {
                Some(i32::from(socket.cold.lock().options.has_freebind()))
            }
            (libc::IPPROTO_IPV6, libc::IPV6_FREEBIND)
                if self.network.policy().is_some() && socket.family == Family::V6 =>
            {
                Some(i32::from(socket.cold.lock().options.has_freebind()))
            }
            _ => None,
        })
    }

    /// Returns options that the kernel's part does not know: identity, peer and filter.
    fn own_to_socket(
        &self,
        fd: i32,
        socket: &Description,
        (level, name): (i32, i32),
        value: &mut [u8],
    ) -> Outcome<Option<usize>> {
        let is_foreign = matches!(socket.decided(), Some(Decided::Foreign(_)));
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_COOKIE) => {
                // The highest bit keeps it apart from cookies of the kernel's own sockets.
                let cookie = (1u64 << 63 | self.ids.inode_of(socket)).to_ne_bytes();
                if value.len() < cookie.len() {
                    return Err(Errno::EINVAL.into());
                }
                Ok(Some(put(value, &cookie)))
            }
            (libc::SOL_SOCKET, libc::SO_PEERNAME) if !is_foreign => {
                let peer = self.getpeername(fd)?;
                // The name is cut to the caller's room, which must not be larger than the name.
                if value.len() > peer.as_bytes().len() {
                    return Err(Errno::EINVAL.into());
                }
                Ok(Some(put(value, peer.as_bytes())))
            }
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                let Some(Decided::Listener(listener)) = socket.decided() else {
                    return Ok(None);
                };
                let len = self.ask_kernel(socket, level, name, value)?;
                if let Some(attachment) = self.engines.first() {
                    self.turn_if_idle(&attachment);
                }
                tcp_info::add_waiting(listener.waiting(), &mut value[..len]);
                Ok(Some(len))
            }
            (libc::IPPROTO_TCP, libc::TCP_SAVED_SYN) => match socket.decided() {
                Some(Decided::Stream(stream)) => Ok(Some(saved_syn(socket, stream, value)?)),
                _ => Ok(None),
            },
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPING)
                if matches!(socket.decided(), Some(Decided::Stream(_))) =>
            {
                Ok(Some(put(value, &stamping_value(socket))))
            }
            _ => Ok(self.network.filter_of(socket, level, name, value)?),
        }
    }

    fn ask_kernel(
        &self,
        socket: &Description,
        level: i32,
        name: i32,
        value: &mut [u8],
    ) -> Outcome<usize> {
        // The kernel's part may have a word for another program before its filter.
        match judge_of(socket, level).filter(|_| (level, name) != ATTACH) {
            Some(number) => Ok(self
                .kernel
                .getsockopt(number.number(), level, name, value)?),
            None => {
                let twin = self.kernel_twin(socket, SocketFlags::empty())?;
                let got = self.kernel.getsockopt(twin.as_raw_fd(), level, name, value);
                drop(twin);
                self.numbers.keep_spare();
                Ok(got?)
            }
        }
    }

    fn take_error(&self, socket: &Arc<Description>) -> Outcome<Option<Errno>> {
        match socket.decided() {
            Some(Decided::Stream(stream)) => {
                let error = stream.take_error();
                give_port_of_ended_back(socket);
                Ok(error)
            }
            Some(Decided::Dgram(dgram)) => {
                self.bring_errors(dgram);
                if let Some(error) = dgram.take_error() {
                    return Ok(Some(error));
                }
                if dgram.side() == Side::Stack {
                    return Ok(None);
                }
                Err(Divert::Kernel)
            }
            Some(Decided::Foreign(it)) => Ok(self.take_borrowed_error(socket, it)),
            Some(Decided::Listener(_)) => Ok(None),
            None if socket.has_kernel() => Err(Divert::Kernel),
            None => Ok(None),
        }
    }
}

/// Returns the kernel socket that can check a socket's options. `None`: a temporary one is made,
/// because a borrowed socket has one of another family under its numbers.
fn judge_of(socket: &Description, level: i32) -> Option<slipstack_mem::Descriptor> {
    let is_pair =
        level != libc::SOL_SOCKET && matches!(socket.decided(), Some(Decided::Foreign(_)));
    socket.kernel_number().filter(|_| !is_pair)
}

/// Whether an option is SO_RCVTIMEO or SO_SNDTIMEO.
pub(super) fn is_time_limit(level: i32, name: i32) -> bool {
    let names = [
        libc::SO_RCVTIMEO,
        libc::SO_SNDTIMEO,
        RCVTIMEO_NEW,
        SNDTIMEO_NEW,
    ];
    level == libc::SOL_SOCKET && names.contains(&name)
}

/// Stores the options that calls read beside the record.
pub(super) fn note_beside(
    socket: &Description,
    (level, name): (i32, i32),
    value: &[u8],
    options: &Options,
) -> Result<(), Errno> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO | RCVTIMEO_NEW) => {
            set_timeout(&socket.recv_timeout_ns, value)?;
        }
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO | SNDTIMEO_NEW) => {
            set_timeout(&socket.send_timeout_ns, value)?;
        }
        (
            libc::SOL_SOCKET,
            libc::SO_ZEROCOPY
            | libc::SO_SELECT_ERR_QUEUE
            | libc::SO_TIMESTAMPING
            | TIMESTAMPING_NEW,
        ) => socket.error_queue.set(requested_messages(socket, options)),
        (libc::SOL_SOCKET, libc::SO_PEEK_OFF) => {
            let offset = int_of(value).unwrap_or(-1);
            socket.peek_offset.store(offset, Ordering::Relaxed);
        }
        _ => {}
    }
    Ok(())
}

/// Returns SO_PEEK_OFF of a socket whose reads are ours.
fn peek_offset(socket: &Description) -> Option<i32> {
    match socket.decided() {
        Some(Decided::Stream(_)) => {}
        Some(Decided::Dgram(dgram)) if dgram.side() != Side::Kernel => {}
        // The pair has it for our own purpose.
        Some(Decided::Foreign(it)) if it.reads.are_counted() || socket.kind == Kind::Dgram => {}
        _ => return None,
    }
    Some(socket.peek_offset.load(Ordering::Relaxed))
}

/// Writes the headers of the SYN that opened a connection, which are there once. Returns their
/// length, also if `value` is too short for them: then they are kept.
fn saved_syn(socket: &Description, stream: &Stream, value: &mut [u8]) -> Result<usize, Errno> {
    let kept = socket.cold.lock().saved_syn.take();
    let taken = match kept {
        Some(syn) => Some(syn),
        None => {
            let (attachment, sock) = stream.attachment_and_sock();
            attachment.take_syn(sock)?.map(Box::new)
        }
    };
    let Some(syn) = taken else {
        return Ok(0);
    };
    let needed = syn.bytes().len();
    if value.len() < needed {
        socket.cold.lock().saved_syn = Some(syn);
        return Ok(needed);
    }
    Ok(put(value, syn.bytes()))
}

/// Returns the path MTU of a socket that has a peer on the stack.
fn path_mtu_of(socket: &Description) -> Result<Option<i32>, Errno> {
    let info = match socket.decided() {
        Some(Decided::Stream(stream)) => stream.info()?,
        Some(Decided::Dgram(dgram)) if dgram.side() == Side::Stack => match dgram.part() {
            Some((attachment, sock)) => attachment.info(sock)?,
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(i32::try_from(info.pmtu).ok())
}

/// Switched off, it empties the error queue.
fn is_return(level: i32, name: i32) -> bool {
    matches!(
        (level, name),
        (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
    )
}

/// Options that need no judge: an int of full length, any value of which the kernel takes.
fn is_plain(kind: Kind, level: i32, name: i32, value: &[u8]) -> bool {
    value.len() >= 4
        && match level {
            libc::SOL_SOCKET => matches!(
                name,
                libc::SO_REUSEADDR
                    | libc::SO_REUSEPORT
                    | libc::SO_KEEPALIVE
                    | libc::SO_RCVBUF
                    | libc::SO_SNDBUF
                    | libc::SO_BROADCAST
                    | libc::SO_OOBINLINE
            ),
            libc::IPPROTO_TCP if kind == Kind::Stream => matches!(
                name,
                libc::TCP_NODELAY | libc::TCP_CORK | libc::TCP_QUICKACK
            ),
            _ => false,
        }
}

pub(super) fn put(out: &mut [u8], value: &[u8]) -> usize {
    let count = out.len().min(value.len());
    out[..count].copy_from_slice(&value[..count]);
    count
}

/// Returns the algorithm of a connection, or the one set for a future connection.
fn congestion_of(socket: &Description) -> Outcome<Option<Congestion>> {
    if let Some(Decided::Stream(stream)) = socket.decided() {
        let info = stream.info()?;
        return Ok(Some(info.congestion));
    }
    let cold = socket.cold.lock();
    let set = cold.options.bytes(libc::IPPROTO_TCP, libc::TCP_CONGESTION);
    Ok(set.and_then(congestion))
}
