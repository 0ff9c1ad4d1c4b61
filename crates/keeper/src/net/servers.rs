//! The engines that listen on each TCP port, and at which addresses.
//!
//! Steering knows ports alone. Connections that wait here go to an engine that has a listener for
//! their address: the others on the port belong to other sockets.

use std::collections::HashMap;
use std::net::SocketAddr;

use slipstack_stack::Bound;

use crate::leases::Server;

/// The listeners that engines have, by port.
#[derive(Debug, Default)]
pub(super) struct Servers {
    ports: HashMap<u16, Vec<Server>>,
}

impl Servers {
    /// Takes the listeners of all engines, each with its port.
    pub(super) fn set(&mut self, servers: impl Iterator<Item = (u16, Server)>) {
        self.ports.clear();
        for (port, server) in servers {
            self.ports.entry(port).or_default().push(server);
        }
    }

    fn on(&self, port: u16) -> &[Server] {
        self.ports.get(&port).map_or(&[], Vec::as_slice)
    }

    /// Returns whether an engine listens on the port, at any address.
    pub(super) fn has_port(&self, port: u16) -> bool {
        self.ports.contains_key(&port)
    }

    /// Returns whether an engine listens for connections to this address; `link` is the choice of
    /// their socket.
    pub(super) fn takes(&self, local: SocketAddr, link: u16) -> bool {
        let mut servers = self.on(local.port()).iter();
        servers.any(|it| it.link == link && it.span.takes(local.ip()))
    }

    /// Returns whether an engine has a listener of exactly this span.
    pub(super) fn has(&self, span: Bound, port: u16, link: u16) -> bool {
        let mut servers = self.on(port).iter();
        servers.any(|it| (it.span, it.link) == (span, link))
    }

    /// The slot of a connection to this address: `route`, which steering names, if its engine has
    /// a listener there, or another one, chosen by `bucket`; `None` if no engine has.
    pub(super) fn choose(
        &self,
        (local, link): (SocketAddr, u16),
        route: u16,
        bucket: u16,
    ) -> Option<u16> {
        let there = || {
            let servers = self.on(local.port()).iter();
            servers.filter(|it| it.link == link && it.span.takes(local.ip()))
        };
        if there().any(|it| it.slot == route) {
            return Some(route);
        }
        let has_keen = there().any(|it| it.is_keen);
        let slots: Vec<u16> = there()
            .filter(|it| it.is_keen == has_keen)
            .map(|it| it.slot)
            .collect();
        slots
            .get(usize::from(bucket).checked_rem(slots.len())?)
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(slot: u16, ip: &str, is_v6_only: bool) -> (u16, Server) {
        let server = Server {
            slot,
            span: Bound::new(ip.parse().unwrap(), is_v6_only),
            link: 0,
            is_keen: true,
        };
        (80, server)
    }

    fn servers(all: &[(u16, Server)]) -> Servers {
        let mut servers = Servers::default();
        servers.set(all.iter().copied());
        servers
    }

    #[test]
    fn a_connection_is_taken_by_a_listener_of_its_family_and_address() {
        for (ip, is_v6_only, v4, v6) in [
            ("0.0.0.0", false, true, false),
            ("::", true, false, true),
            ("::", false, true, true),
            ("10.0.0.1", false, true, false),
            ("10.0.0.2", false, false, false),
        ] {
            let servers = servers(&[server(3, ip, is_v6_only)]);
            let takes = |local: &str| servers.takes(local.parse().unwrap(), 0);
            assert_eq!(
                (takes("10.0.0.1:80"), takes("[fd00::1]:80")),
                (v4, v6),
                "{ip}"
            );
            assert!(!servers.takes("10.0.0.1:81".parse().unwrap(), 0));
            assert!(
                !servers.takes("10.0.0.1:80".parse().unwrap(), 1),
                "another link"
            );
        }
    }

    #[test]
    fn the_route_is_left_only_for_an_engine_that_has_the_address() {
        let mut all = [
            server(1, "10.0.0.1", false),
            server(2, "10.0.0.2", false),
            server(3, "10.0.0.2", false),
        ];
        let at = |ip: &str| (SocketAddr::new(ip.parse().unwrap(), 80), 0);
        let two = servers(&all);
        assert_eq!(two.choose(at("10.0.0.1"), 2, 0), Some(1));
        assert_eq!(two.choose(at("10.0.0.2"), 3, 0), Some(3));
        assert_eq!(two.choose(at("10.0.0.2"), 1, 5), Some(3), "by the bucket");
        assert_eq!(two.choose(at("10.0.0.3"), 1, 0), None);
        assert_eq!(
            two.choose((at("10.0.0.2").0, 1), 3, 0),
            None,
            "another link"
        );
        all[2].1.is_keen = false;
        assert_eq!(servers(&all).choose(at("10.0.0.2"), 1, 5), Some(2));
    }
}
