//! Decisions by the network: whether a socket is the stack's, and whether it may send.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use slipstack_mem::Descriptor;

use crate::addr::{Family, Given, is_link_local, parse, scope_of, stack_addr};
use crate::errno::Errno;
use crate::process::network::Network;
use crate::process::report::Reason;
use crate::socket::Dgram;
use crate::socket::bound::Bound;
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::kernel_socket::kernel_name;
use crate::socket::options::attaching::filter_of;
use crate::socket::options::meaning::refusal;
use crate::socket::options::record::int_of;

impl Network {
    /// tcp_v4_connect() and tcp_v6_connect(): refuse broadcast and multicast addresses.
    pub(crate) fn is_for_many(&self, remote: SocketAddr) -> bool {
        let ip = remote.ip();
        ip.is_multicast()
            || ip == Ipv4Addr::BROADCAST
            || self.policy().is_some_and(|policy| policy.is_broadcast(ip))
    }

    /// Returns the address that a call with MSG_FASTOPEN connects to.
    pub(crate) fn opening_to(
        &self,
        socket: &Description,
        to: Option<&[u8]>,
    ) -> Result<SocketAddr, Errno> {
        let given = to.map(|to| parse(to, socket.family)).transpose()?;
        match given.map(|given| self.zoned_for(socket, given)) {
            None => Err(Errno::EINVAL),
            Some(Given::Unspecified) => Err(Errno::EOPNOTSUPP),
            Some(Given::Other) => Err(Errno::EAFNOSUPPORT),
            Some(Given::Addr(remote)) => Ok(remote),
        }
    }

    /// Checks SO_DONTROUTE: packets without a router find stations of the link alone. IPv6 knows
    /// nothing of the kind.
    pub(crate) fn check_link(&self, remote: SocketAddr) -> Result<(), Errno> {
        let ip = remote.ip().to_canonical();
        let is_far = |ip: Ipv4Addr| !(ip.is_loopback() || ip.is_multicast() || ip.is_broadcast());
        match (ip, self.policy()) {
            (IpAddr::V4(v4), Some(policy)) if is_far(v4) && !policy.is_on_link(ip) => {
                Err(Errno::ENETUNREACH)
            }
            _ => Ok(()),
        }
    }

    /// Checks a connection by the kernel's loopback.
    pub(crate) fn check_loopback(&self, socket: &Description, why: Reason) -> Result<(), Errno> {
        let bound = socket.cold.lock().bound;
        // DEVIATION(Linux): the loopback has no way back to our address. Over IPv6 the kernel would
        // send a SYN that nobody answers.
        match why == Reason::Loopback && bound.is_some_and(|it| self.is_own(it.addr)) {
            true => Err(Errno::ENETUNREACH),
            false => Ok(()),
        }
    }

    /// Reason why a connection to `remote` is the kernel's, if it is.
    pub(crate) fn reason_to_connect_in_kernel(
        &self,
        socket: &Description,
        remote: SocketAddr,
    ) -> Option<Reason> {
        if remote.ip().is_loopback() || remote.ip().is_unspecified() {
            return Some(Reason::Loopback);
        }
        let cold = socket.cold.lock();
        let scope = scope_of(remote);
        let is_ours = if remote.ip().is_multicast() {
            socket.kind == Kind::Dgram && self.sends_to_group(&cold.options, remote.ip(), scope)
        } else if is_link_local(remote.ip()) && scope != 0 && !self.is_interface_of_stack(scope) {
            false
        } else {
            let bound = cold.bound.map(|bound| bound.addr);
            self.is_reachable(remote, &cold.options, bound)
        };
        if !is_ours {
            return Some(match self.policy() {
                Some(_) => Reason::Route,
                None => Reason::NoStack,
            });
        }
        cold.options.has_device().then_some(Reason::Device)
    }

    /// Reason why a socket bound to `addr` has no business on the stack, if so.
    pub(crate) fn reason_for_kernel(
        &self,
        socket: &Description,
        addr: SocketAddr,
    ) -> Option<Reason> {
        let options = socket.cold.lock().options.clone();
        if options.has_device() {
            return Some(Reason::Device);
        }
        let is_group = |ip: IpAddr| {
            let policy = self.policy();
            policy.is_some_and(|policy| {
                let has_family = |own: &(IpAddr, u8)| own.0.is_ipv4() == ip.is_ipv4();
                (ip.is_multicast() && policy.addresses().iter().any(has_family))
                    || policy.is_broadcast(ip)
            })
        };
        match addr.ip() {
            ip if socket.kind == Kind::Dgram && is_group(ip) => None,
            // Addresses of its family may be added to the stack at any time.
            ip if ip.is_unspecified() => self.policy().is_none().then_some(Reason::NoStack),
            // Without its interface, or with another, the kernel returns the error.
            ip if is_link_local(ip) && !self.is_interface_of_stack(scope_of(addr)) => {
                Some(Reason::LocalAddress)
            }
            ip if !ip.is_loopback() && self.policy().is_none() => Some(Reason::NoStack),
            _ if self.is_own(addr) => None,
            _ if options.is_transparent() && is_strange_to_kernel(addr) => None,
            _ => Some(Reason::LocalAddress),
        }
    }

    /// Returns whether a socket is bound to an address that is not the stack's (IP_TRANSPARENT).
    pub(crate) fn is_strange(&self, bound: &Bound) -> bool {
        let ip = bound.addr.ip();
        let is_station = !(ip.is_unspecified() || ip.is_multicast());
        is_station && !bound.is_wildcard && !self.is_own(bound.addr)
    }

    /// inet_bind() checks whether the address is local before it checks whether the socket is bound
    /// already; inet6_bind() does not.
    #[cold]
    pub(crate) fn refuse_to_rebind(&self, socket: &Description, addr: SocketAddr) -> Errno {
        let addr = SocketAddr::new(addr.ip(), 0);
        if socket.family == Family::V6 || self.is_own(addr) {
            return Errno::EINVAL;
        }
        let (domain, kind) = (AddressFamily::INET, SocketType::DGRAM);
        let probe = rustix::net::socket_with(domain, kind, SocketFlags::CLOEXEC, None);
        match probe.and_then(|probe| rustix::net::bind(&probe, &addr)) {
            Err(rustix::io::Errno::ADDRNOTAVAIL) => Errno::EADDRNOTAVAIL,
            _ => Errno::EINVAL,
        }
    }

    /// SO_BROADCAST is checked before a broadcast is sent.
    pub(crate) fn may_broadcast(&self, dgram: &Dgram, remote: SocketAddr) -> Result<(), Errno> {
        if dgram.datagram_flags.may_broadcast() || remote.is_ipv6() {
            return Ok(());
        }
        match self.policy() {
            Some(policy) if policy.is_broadcast(remote.ip()) => Err(Errno::EACCES),
            _ => Ok(()),
        }
    }

    /// Refuses options that the stack does not have, and those that cannot be set any more.
    pub(crate) fn check_option(
        &self,
        socket: &Description,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<(), Errno> {
        // The kernel refuses the other family's options itself.
        let is_of_family = level != libc::IPPROTO_IPV6 || socket.family == Family::V6;
        if is_of_family
            && let Some(error) = refusal(socket.kind == Kind::Stream, level, name, value)
            && self.policy().is_some()
        {
            return Err(error);
        }
        // do_tcp_setsockopt(): only a socket in CLOSE may have no limit.
        if (level, name) == (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP)
            && int_of(value) == Some(0)
            && matches!(socket.decided(), Some(Decided::Stream(stream)) if !stream.is_failed())
        {
            return Err(Errno::EINVAL);
        }
        if is_opening(level, name)
            && let Some(Decided::Stream(stream)) = socket.decided()
            && !(stream.is_failed() || stream.is_over())
        {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// Programs bind freely too, to addresses of the kernel's.
    pub(crate) fn has_part_in(&self, number: Descriptor) -> bool {
        kernel_name(number).is_some_and(|addr| {
            let addr = stack_addr(addr);
            addr.ip().is_unspecified() || addr.ip().is_multicast() || self.is_own(addr)
        })
    }

    /// SO_DONTROUTE: ip_sock_rt_scope().
    pub(crate) fn check_direct(
        &self,
        socket: &Description,
        remote: SocketAddr,
    ) -> Result<(), Errno> {
        let is_direct = {
            let cold = socket.cold.lock();
            cold.options.is_on(libc::SOL_SOCKET, libc::SO_DONTROUTE)
        };
        if is_direct {
            self.check_link(remote)?;
        }
        Ok(())
    }

    /// Whether engines run the programs of a socket, and not the kernel alone.
    pub(crate) fn runs_program(&self, socket: &Description) -> bool {
        socket.kind == Kind::Dgram && self.policy().is_some()
    }

    /// The filter of a socket. A connection has none: segments are not kept as they arrived,
    /// headers included (an older kernel without CONFIG_FILTER).
    #[cold]
    pub(crate) fn filter_for(&self, socket: &Description, code: Vec<u8>) -> Result<Vec<u8>, Errno> {
        if socket.kind == Kind::Stream && self.policy().is_some() {
            return Err(Errno::ENOPROTOOPT);
        }
        filter_of(code, self.runs_program(socket))
    }
}

/// Returns whether an address is none of the kernel's: what it sends to one of its own comes from
/// there. (With `ip_nonlocal_bind` a bind tells nothing.)
fn is_strange_to_kernel(addr: SocketAddr) -> bool {
    const PORT: u16 = 9;
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let there = SocketAddr::new(addr.ip(), PORT);
    let probe = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let source = probe.and_then(|probe| {
        rustix::net::connect(&probe, &there)?;
        rustix::net::getsockname(&probe)
    });
    let source = source.ok().and_then(|name| SocketAddr::try_from(name).ok());
    !addr.ip().is_loopback() && source.is_none_or(|source| source.ip() != addr.ip())
}

/// Whether the option is for a socket that has no connection yet.
fn is_opening(level: i32, name: i32) -> bool {
    let is_name = matches!(
        name,
        libc::TCP_FASTOPEN | libc::TCP_FASTOPEN_CONNECT | libc::TCP_FASTOPEN_NO_COOKIE
    );
    level == libc::IPPROTO_TCP && is_name
}
