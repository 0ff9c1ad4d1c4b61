//! The address at which a socket is bound.

use std::net::SocketAddr;

/// Binding of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// The local address; the port is known.
    pub(crate) addr: SocketAddr,
    /// Set if the address is the wildcard.
    pub(crate) is_wildcard: bool,
    /// The program did not ask for this port.
    pub(crate) is_port_chosen: bool,
    /// The program asked for port 0 and has not queried the result.
    pub(crate) is_port_unseen: bool,
    /// The port has been given back with the end of an attempt or a connection, and names the
    /// socket still.
    pub(crate) is_port_given_back: bool,
    /// Time at which a datagram socket was bound, which is its rank in a SO_REUSEPORT group; 0 =
    /// not seen.
    pub(crate) at_ns: u64,
}

impl Bound {
    /// A socket that comes from another program, of which the kernel's part alone tells where it
    /// is bound.
    pub(crate) fn of_kernel(addr: std::net::SocketAddr) -> Bound {
        Bound {
            addr,
            is_wildcard: addr.ip().is_unspecified(),
            is_port_chosen: false,
            is_port_unseen: false,
            is_port_given_back: false,
            at_ns: 0,
        }
    }

    /// A socket whose port, `port`, has been given back and that was not bound but by it.
    pub(crate) fn of_past(any: SocketAddr, port: u16) -> Bound {
        Bound {
            addr: SocketAddr::new(any.ip(), port),
            is_wildcard: true,
            is_port_chosen: true,
            is_port_unseen: true,
            is_port_given_back: true,
            at_ns: 0,
        }
    }

    /// Whether the socket holds this port.
    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.addr.port() == port && !self.is_port_given_back
    }

    /// Marks the port as given back, and returns true, if it is held and the program has not asked
    /// for it. The socket is named after the port of its connection, `last`.
    pub(crate) fn give_port_back(&mut self, last: Option<SocketAddr>) -> bool {
        if !self.is_port_chosen {
            return false;
        }
        if let Some(last) = last {
            self.addr.set_port(last.port());
        }
        // The next attempt is from another one.
        self.is_port_unseen = true;
        !std::mem::replace(&mut self.is_port_given_back, true)
    }
}
