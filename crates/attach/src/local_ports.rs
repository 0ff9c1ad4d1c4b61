//! Local ports that sockets of the kernel have.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use slipstack_channel::Transport;

/// Returns whether a socket of this network namespace is bound to a port, at any address.
pub(crate) fn is_bound(transport: Transport, port: u16) -> bool {
    let kind = match transport {
        Transport::Tcp => SocketType::STREAM,
        Transport::Udp => SocketType::DGRAM,
    };
    let probe = |family, any: SocketAddr| {
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &any)
    };
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let outcome = match probe(AddressFamily::INET6, everywhere) {
        // A kernel without IPv6.
        Err(rustix::io::Errno::AFNOSUPPORT | rustix::io::Errno::ADDRNOTAVAIL) => {
            let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            probe(AddressFamily::INET, everywhere)
        }
        outcome => outcome,
    };
    outcome == Err(rustix::io::Errno::ADDRINUSE)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn a_port_is_bound_at_whatever_address_a_socket_has_it() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            assert!(is_bound(Transport::Tcp, port), "{address}");
            drop(listener);
            assert!(!is_bound(Transport::Tcp, port), "{address}");
        }
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = datagrams.local_addr().unwrap().port();
        assert!(is_bound(Transport::Udp, port));
        drop(datagrams);
        assert!(!is_bound(Transport::Udp, port));
    }
}
