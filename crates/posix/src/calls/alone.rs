//! Sockets that are only the stack's (SOCK_STACK): no kernel socket holds their port or receives on
//! other interfaces, so that a program may have the same port on both.

use std::net::SocketAddr;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::addr::any;
use crate::addr::stack_addr;
use crate::calls::name::insist_on_listening;
use crate::epoll::leave_kernels_sets;
use crate::errno::Errno;
use crate::outcome::Outcome;
use crate::process::Process;
use crate::process::strict::insist;
use crate::process::table::Table;
use crate::socket::bound::Bound;
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::options::apply_dgram_options;
use crate::socket::{Dgram, Listener, Side};

/// Connections that wait at a listener at most (net.core.somaxconn of Linux).
const BACKLOG_MAX: i32 = 4096;

impl Process {
    /// The engine, had now instead of with the first socket that needs it.
    ///
    /// # Errors
    /// Why there is none, in one sentence.
    pub fn attach_now(&self) -> Result<String, String> {
        match self.attached() {
            Ok(attachment) => Ok(attachment.describe.clone()),
            Err(error) => Err(self.engines.trouble().unwrap_or_else(|| error.to_string())),
        }
    }

    /// Whether the number is a socket that has no part in the kernel.
    #[must_use]
    pub fn is_alone(&self, fd: i32) -> bool {
        self.table
            .socket_of(fd)
            .is_ok_and(|socket| socket.is_alone())
    }

    pub(crate) fn bind_alone(&self, socket: &Arc<Description>, addr: SocketAddr) -> Outcome<()> {
        let ip = addr.ip();
        let is_for_many = |ip| {
            self.network
                .policy()
                .is_some_and(|policy| policy.is_broadcast(ip))
        };
        let is_group = ip.is_multicast() || is_for_many(ip);
        let may_be_group = is_group && socket.kind == Kind::Dgram;
        if !ip.is_unspecified() && !may_be_group && !self.network.is_own(addr) {
            return Err(Errno::EADDRNOTAVAIL.into());
        }
        let port = match addr.port() {
            0 => free_port(socket)?,
            port if !self.may_bind_alone(socket, SocketAddr::new(ip, port)) => {
                return Err(Errno::EADDRINUSE.into());
            }
            port => port,
        };
        self.note_binder(socket);
        socket.cold.lock().bound = Some(Bound {
            addr: SocketAddr::new(ip, port),
            is_wildcard: ip.is_unspecified() || may_be_group,
            is_port_chosen: addr.port() == 0,
            is_port_unseen: addr.port() == 0,
            is_port_given_back: false,
            at_ns: 0,
        });
        if socket.kind == Kind::Dgram {
            let _ = socket.decided.set(Decided::Dgram(Dgram::new(Side::Stack)));
            apply_dgram_options(socket);
            leave_kernels_sets(socket);
            self.on_intent(socket);
            self.realize_bound(socket);
            insist(&self.settings, socket)?;
        }
        Ok(())
    }

    pub(crate) fn listen_alone(&self, socket: &Arc<Description>, backlog: i32) -> Outcome<()> {
        if self
            .network
            .policy()
            .is_none_or(|policy| policy.addresses().is_empty())
        {
            return Err(Errno::ENETDOWN.into());
        }
        let known = socket.cold.lock().bound;
        let ip = known.map_or(any(socket.family).ip(), |bound| bound.addr.ip());
        let bound = match known.filter(|it| !it.is_port_given_back) {
            Some(bound) => bound,
            None => Bound {
                addr: SocketAddr::new(ip, free_port(socket)?),
                is_wildcard: ip.is_unspecified(),
                is_port_chosen: true,
                is_port_unseen: false,
                is_port_given_back: false,
                at_ns: 0,
            },
        };
        socket.cold.lock().bound = Some(bound);
        let listener = Listener::new(stack_addr(bound.addr), bounded(backlog));
        if socket.decided.set(Decided::Listener(listener)).is_err() {
            return Err(Errno::EINVAL.into());
        }
        leave_kernels_sets(socket);
        self.on_intent(socket);
        self.report.tell(&self.engines);
        insist_on_listening(&self.settings, socket)
    }
}

/// The backlog of a listener that has no part in the kernel.
pub(crate) fn bounded(backlog: i32) -> i32 {
    match backlog {
        0..=BACKLOG_MAX => backlog,
        _ => BACKLOG_MAX,
    }
}

/// A port that is free in the kernel just now, of those that it gives to clients.
fn free_port(socket: &Description) -> Result<u16, Errno> {
    let (family, kind) = match any(socket.family) {
        SocketAddr::V4(_) => (AddressFamily::INET, socket.kind),
        SocketAddr::V6(_) => (AddressFamily::INET6, socket.kind),
    };
    let kind = match kind {
        Kind::Stream => SocketType::STREAM,
        Kind::Dgram => SocketType::DGRAM,
    };
    let probe = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&probe, &any(socket.family))?;
    let name = rustix::net::getsockname(&probe)?;
    SocketAddr::try_from(name)
        .map(|name| name.port())
        .map_err(|_| Errno::EADDRINUSE)
}

impl Table {
    /// Sockets of this kind that have the address and do not share it with `socket`.
    pub(crate) fn alone_at(
        &self,
        socket: &Arc<Description>,
        addr: SocketAddr,
    ) -> Vec<Arc<Description>> {
        let may_share = socket.shares_port();
        let overlaps = |other: SocketAddr| {
            other.port() == addr.port()
                && (other.ip() == addr.ip()
                    || (other.is_ipv4() == addr.is_ipv4()
                        && (other.ip().is_unspecified() || addr.ip().is_unspecified())))
        };
        let has_it = |other: &Description| {
            let bound = other.cold.lock().bound;
            other.kind == socket.kind
                && other.is_alone()
                && bound.is_some_and(|it| overlaps(it.addr) && !it.is_port_given_back)
                && !matches!(other.decided(), Some(Decided::Stream(_)))
                && !(may_share && other.shares_port())
        };
        self.sockets().filter(|other| has_it(other)).collect()
    }
}
