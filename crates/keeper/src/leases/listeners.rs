//! Assignment of listening ports to engines.
//!
//! Steering looks only at the local port, so all listeners on one port share it, whatever their
//! address; two programs may do that under the rules of the kernel.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use slipstack_device::Transport;
use slipstack_stack::Bound as Span;

use super::clients::{ClientId, Family};

/// Most listening entries of one keeper.
pub const LISTENERS_MAX: usize = 4096;

/// One client's claim on a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    pub client: ClientId,
    pub family: Family,
    pub uid: u32,
    pub protocol: Transport,
    /// Unspecified: every address.
    pub address: IpAddr,
    /// [::] does not take IPv4 in.
    #[serde(default)]
    pub is_v6_only: bool,
    pub port: u16,
    /// The link that its sockets are bound to, its number plus one; 0 = any.
    #[serde(default)]
    pub link: u16,
    pub reuse_port: bool,
    /// The engine that serves it; `None`: claimed by a process that has no engine yet.
    pub slot: Option<u16>,
    /// The listener leaves new connections to others, if there are any.
    pub is_yielding: bool,
    /// The others on the port never get what comes for it: on the kernel a socket of a SO_REUSEPORT
    /// group has a queue of its own, on which QUIC's connections rely.
    #[serde(default)]
    pub has_own_queue: bool,
    /// Number of equal requests of the client.
    pub count: u32,
}

impl Listener {
    /// Names the queue that a claim shares with others on its port; `None`: it has one of its own.
    /// A queue of datagrams is that of one socket, which forked processes have.
    fn queue(&self) -> Option<Option<(Family, IpAddr, u16)>> {
        match self.protocol {
            Transport::Tcp => Some(None),
            Transport::Udp => {
                (!self.has_own_queue).then_some(Some((self.family, self.address, self.link)))
            }
        }
    }

    /// Returns whether another engine may serve what comes for this one.
    fn is_queue_of(&self, other: &Listener) -> bool {
        self.queue().is_some() && other.queue() == self.queue() && other.slot != self.slot
    }
}

/// The address, port and link that a program listens on, as in [`Listener`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    pub address: IpAddr,
    pub port: u16,
    pub link: u16,
    /// As in [`Listener`]; two claims that differ in it alone are one.
    pub is_v6_only: bool,
}

impl Bound {
    pub fn new(address: IpAddr, port: u16, link: u16) -> Bound {
        Bound {
            address,
            port,
            link,
            is_v6_only: false,
        }
    }
}

/// A listener with an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    pub slot: u16,
    pub span: Span,
    /// As in [`Listener`].
    pub link: u16,
    /// Whether new connections go there: it does not yield, and its engine runs.
    pub is_keen: bool,
}

/// Reason why a port cannot be listened on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenRefused {
    /// Another client has it.
    InUse(ClientId),
    TableFull,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Listeners {
    table: Vec<Listener>,
    /// Slots whose engine does not run. A successor detects them again.
    #[serde(skip)]
    stalled: Vec<u16>,
}

impl Listeners {
    /// Enters a claim if the rules of the kernel allow it: one port belongs to one program, to a
    /// family of forked processes, or to several of one user that all set SO_REUSEPORT.
    pub fn claim(&mut self, wanted: Listener) -> Result<(), ListenRefused> {
        let same_port = |l: &&Listener| l.protocol == wanted.protocol && l.port == wanted.port;
        let conflict = self
            .table
            .iter()
            .filter(same_port)
            .find(|held| !may_share(held, &wanted));
        if let Some(held) = conflict {
            return Err(ListenRefused::InUse(held.client));
        }
        let same = |l: &&mut Listener| {
            l.client == wanted.client
                && l.protocol == wanted.protocol
                && l.port == wanted.port
                && l.address == wanted.address
                && l.link == wanted.link
        };
        if let Some(held) = self.table.iter_mut().find(same) {
            held.count = held.count.saturating_add(1);
            held.is_v6_only &= wanted.is_v6_only;
            held.slot = wanted.slot;
            held.is_yielding = false;
            return Ok(());
        }
        if self.table.len() >= LISTENERS_MAX {
            return Err(ListenRefused::TableFull);
        }
        self.table.push(wanted);
        Ok(())
    }

    /// Takes one claim back. Unknown claims are ignored.
    pub fn release(&mut self, client: ClientId, protocol: Transport, bound: Bound) {
        let position = self.table.iter().position(|l| {
            (l.client, l.protocol) == (client, protocol)
                && (l.address, l.port, l.link) == (bound.address, bound.port, bound.link)
        });
        let Some(position) = position else { return };
        match self.table[position].count {
            0 | 1 => {
                self.table.swap_remove(position);
            }
            _ => self.table[position].count -= 1,
        }
    }

    /// Takes back everything of a client and returns the ports that it held.
    pub fn release_all(&mut self, client: ClientId) -> Vec<(Transport, u16)> {
        let mut ports: Vec<(Transport, u16)> = self
            .table
            .iter()
            .filter(|l| l.client == client)
            .map(|l| (l.protocol, l.port))
            .collect();
        self.table.retain(|l| l.client != client);
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// The listeners of TCP ports that have an engine.
    pub fn servers(&self) -> impl Iterator<Item = (u16, Server)> + '_ {
        let tcp = self.table.iter().filter(|l| l.protocol == Transport::Tcp);
        tcp.filter_map(|l| {
            let server = Server {
                slot: l.slot?,
                span: Span::new(l.address, l.is_v6_only),
                link: l.link,
                is_keen: !l.is_yielding && !self.is_stalled(l),
            };
            Some((l.port, server))
        })
    }

    /// The slots that serve a port, ascending, each once.
    pub fn slots(&self, protocol: Transport, port: u16) -> Vec<u16> {
        let serving = || self.on(protocol, port).filter(|l| l.slot.is_some());
        let is_keen = |l: &Listener| !l.is_yielding && !self.is_stalled(l);
        let has_keen = serving().any(is_keen);
        let mut slots: Vec<u16> = serving()
            .filter(|l| !has_keen || is_keen(l))
            .filter_map(|l| l.slot)
            .collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    fn is_stalled(&self, listener: &Listener) -> bool {
        let is_stalled = |slot| self.stalled.contains(&slot);
        listener.slot.is_some_and(is_stalled) && self.may_be_left(listener)
    }

    /// Returns whether others may serve what comes for a listener: new connections can go to all on
    /// the port, if there are others, as what one cannot take comes back.
    fn may_be_left(&self, listener: &Listener) -> bool {
        let mut others = self.on(listener.protocol, listener.port);
        let is_running = |slot: u16| !self.stalled.contains(&slot);
        listener.protocol == Transport::Tcp
            || others.any(|it| listener.is_queue_of(it) && it.slot.is_some_and(is_running))
    }

    /// The engine of a slot does not run, or runs again. Returns the ports that others may serve
    /// meanwhile.
    pub fn set_stalled(&mut self, slot: u16, is_on: bool) -> Vec<(Transport, u16)> {
        self.stalled.retain(|it| *it != slot);
        if is_on {
            self.stalled.push(slot);
        }
        let may_be_left = |l: &&Listener| l.slot == Some(slot) && self.may_be_left(l);
        let serving = self.table.iter().filter(may_be_left);
        let mut ports: Vec<_> = serving.map(|l| (l.protocol, l.port)).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Returns whether several engines serve one port together.
    pub fn has_shared(&self) -> bool {
        self.table.len() > 1 && !self.sharing().is_empty()
    }

    /// The slots that serve ports which others serve too, with what comes for one of them if that
    /// does not run; each once.
    pub fn sharing(&self) -> Vec<u16> {
        let serving = self.table.iter();
        let mut serving: Vec<_> = serving
            .filter_map(|l| Some(((l.protocol, l.port, l.queue()?), l.slot?)))
            .collect();
        serving.sort_unstable();
        serving.dedup();
        let of_one_queue = serving.chunk_by(|one, two| one.0 == two.0);
        let mut slots: Vec<u16> = of_one_queue
            .filter(|on_port| on_port.len() > 1)
            .flat_map(|on_port| on_port.iter().map(|it| it.1))
            .collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Leaves a port to the others on it, or no longer so. False: there are no others, or not for
    /// each of the client's sockets.
    pub fn set_yielding(
        &mut self,
        client: ClientId,
        protocol: Transport,
        port: u16,
        is_on: bool,
    ) -> bool {
        let is_running = |slot: u16| !self.stalled.contains(&slot);
        let is_keen =
            |l: &&Listener| l.client != client && l.slot.is_some_and(is_running) && !l.is_yielding;
        let keen = || self.on(protocol, port).filter(is_keen);
        let own = || self.on(protocol, port).filter(|l| l.client == client);
        let is_left = |l: &Listener| keen().any(|other| l.is_queue_of(other));
        if is_on && (keen().next().is_none() || !own().all(is_left)) {
            return false;
        }
        for listener in &mut self.table {
            if (listener.client, listener.protocol, listener.port) == (client, protocol, port) {
                listener.is_yielding = is_on;
            }
        }
        true
    }

    /// Records that the only datagram socket of a client on a port is connected, or no longer:
    /// other datagrams go to other sockets on the port, if there are any.
    pub fn set_connected(&mut self, client: ClientId, port: u16, is_on: bool) {
        let is_it = |l: &Listener| {
            (l.client, l.protocol, l.port) == (client, Transport::Udp, port) && l.count == 1
        };
        for listener in self.table.iter_mut().filter(|l| is_it(l)) {
            listener.is_yielding = is_on;
        }
    }

    /// Records whether a client's datagram sockets on a port are in groups
    /// ([`Listener::has_own_queue`]).
    pub fn set_own_queue(&mut self, client: ClientId, port: u16, is_on: bool) {
        let is_it = |l: &Listener| (l.client, l.protocol, l.port) == (client, Transport::Udp, port);
        for listener in self.table.iter_mut().filter(|l| is_it(l)) {
            listener.has_own_queue = is_on;
        }
    }

    /// Everyone on a port.
    pub fn on(&self, protocol: Transport, port: u16) -> impl Iterator<Item = &Listener> + '_ {
        self.table
            .iter()
            .filter(move |l| l.protocol == protocol && l.port == port)
    }

    pub fn of(&self, client: ClientId) -> impl Iterator<Item = &Listener> + '_ {
        self.table.iter().filter(move |l| l.client == client)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Listener> + '_ {
        self.table.iter()
    }

    /// Sets the serving slot of all claims of a client, after it got an engine.
    pub fn serve(&mut self, client: ClientId, slot: Option<u16>) -> Vec<(Transport, u16)> {
        let mut ports = Vec::new();
        for listener in self.table.iter_mut().filter(|l| l.client == client) {
            listener.slot = slot;
            ports.push((listener.protocol, listener.port));
        }
        ports
    }
}

fn may_share(held: &Listener, wanted: &Listener) -> bool {
    is_apart(held, wanted)
        || held.client == wanted.client
        || held.family == wanted.family
        || (held.reuse_port && wanted.reuse_port && held.uid == wanted.uid)
}

/// Two addresses, neither of which is a wildcard, or two links. Steering does not distinguish them,
/// so frames that one engine has no socket for are offered to the others on the port.
fn is_apart(held: &Listener, wanted: &Listener) -> bool {
    let (a, b) = (held.address, wanted.address);
    let has_two_links = held.link != 0 && wanted.link != 0 && held.link != wanted.link;
    has_two_links || (a != b && !a.is_unspecified() && !b.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn listener(client: u64, family: u64, port: u16) -> Listener {
        Listener {
            client: ClientId(client),
            family: Family(family),
            uid: 0,
            protocol: Transport::Tcp,
            address: Ipv4Addr::UNSPECIFIED.into(),
            is_v6_only: false,
            port,
            link: 0,
            reuse_port: false,
            slot: Some(client as u16),
            is_yielding: false,
            has_own_queue: false,
            count: 1,
        }
    }

    #[test]
    fn others_serve_a_shared_datagram_port_of_an_engine_that_does_not_run() {
        let mut listeners = Listeners::default();
        for client in [1, 2] {
            let of_a_child = Listener {
                protocol: Transport::Udp,
                ..listener(client, 7, 53)
            };
            listeners.claim(of_a_child).unwrap();
        }
        assert_eq!(listeners.sharing(), [1, 2]);
        assert_eq!(listeners.set_stalled(1, true), [(Transport::Udp, 53)]);
        assert_eq!(listeners.slots(Transport::Udp, 53), [2]);
        // In a group of SO_REUSEPORT each has its own.
        for client in [1, 2] {
            listeners.set_own_queue(ClientId(client), 53, true);
        }
        assert!(listeners.sharing().is_empty());
        assert_eq!(listeners.slots(Transport::Udp, 53), [1, 2]);
        assert!(listeners.set_stalled(1, true).is_empty());
    }

    #[test]
    fn a_datagram_port_is_left_to_copies_of_its_socket_alone() {
        let mut listeners = Listeners::default();
        for (client, address) in [(1, 1), (2, 1), (3, 3)] {
            let copy = Listener {
                protocol: Transport::Udp,
                address: Ipv4Addr::new(10, 0, 0, address).into(),
                ..listener(client, u64::from(address), 53)
            };
            listeners.claim(copy).unwrap();
        }
        let mut set = |client, is_on| {
            let done = listeners.set_yielding(ClientId(client), Transport::Udp, 53, is_on);
            (done, listeners.slots(Transport::Udp, 53))
        };
        assert_eq!(set(3, true), (false, vec![1, 2, 3]));
        assert_eq!(set(1, true), (true, vec![2, 3]));
        assert_eq!(set(2, true), (false, vec![2, 3]));
        assert_eq!(set(1, false), (true, vec![1, 2, 3]));
        // One that is stopped takes nothing over, nor has one in its place if the other is stopped.
        listeners.set_stalled(2, true);
        assert!(!listeners.set_yielding(ClientId(1), Transport::Udp, 53, true));
        listeners.set_stalled(1, true);
        assert_eq!(listeners.slots(Transport::Udp, 53), [1, 2, 3]);
        for client in [1, 2] {
            listeners.set_own_queue(ClientId(client), 53, true);
        }
        assert!(!listeners.set_yielding(ClientId(1), Transport::Udp, 53, true));
    }

    #[test]
    fn programs_with_addresses_of_their_own_serve_no_datagrams_of_each_other() {
        let mut listeners = Listeners::default();
        for (client, family, address) in [(1, 7, 1), (2, 7, 2), (3, 8, 3)] {
            let at_an_address = Listener {
                protocol: Transport::Udp,
                address: Ipv4Addr::new(10, 0, 0, address).into(),
                ..listener(client, family, 53)
            };
            listeners.claim(at_an_address).unwrap();
        }
        assert!(listeners.sharing().is_empty());
        assert!(listeners.set_stalled(1, true).is_empty());
        assert_eq!(listeners.slots(Transport::Udp, 53), [1, 2, 3]);
    }

    #[test]
    fn a_port_belongs_to_one_program() {
        let mut listeners = Listeners::default();
        assert_eq!(listeners.claim(listener(1, 1, 80)), Ok(()));
        assert_eq!(
            listeners.claim(listener(2, 2, 80)),
            Err(ListenRefused::InUse(ClientId(1)))
        );
        let specific = Listener {
            address: Ipv4Addr::new(10, 0, 0, 1).into(),
            ..listener(2, 2, 80)
        };
        assert_eq!(
            listeners.claim(specific),
            Err(ListenRefused::InUse(ClientId(1)))
        );
        let [one, other] = [3, 4].map(|last| Listener {
            address: Ipv4Addr::new(10, 0, 0, last).into(),
            ..listener(last.into(), last.into(), 82)
        });
        assert_eq!(listeners.claim(one), Ok(()));
        assert_eq!(listeners.claim(other), Ok(()), "two addresses");
        let datagrams = Listener {
            protocol: Transport::Udp,
            ..listener(2, 2, 80)
        };
        assert_eq!(listeners.claim(datagrams), Ok(()));
        assert_eq!(listeners.claim(listener(2, 2, 81)), Ok(()));
    }

    #[test]
    fn two_programs_share_a_port_on_two_links() {
        let mut listeners = Listeners::default();
        let on = |client, link| Listener {
            link,
            ..listener(client, client, 80)
        };
        assert_eq!(listeners.claim(on(1, 1)), Ok(()));
        assert_eq!(listeners.claim(on(2, 11)), Ok(()));
        for link in [0, 1, 11] {
            assert!(listeners.claim(on(3, link)).is_err(), "{link}");
        }
        assert_eq!(listeners.slots(Transport::Tcp, 80), [1, 2]);
    }

    #[test]
    fn forked_workers_share_a_port() {
        let mut listeners = Listeners::default();
        let master = Listener {
            slot: None,
            ..listener(1, 5, 80)
        };
        assert_eq!(listeners.claim(master), Ok(()));
        assert_eq!(listeners.claim(listener(2, 5, 80)), Ok(()));
        assert_eq!(listeners.claim(listener(3, 5, 80)), Ok(()));
        assert_eq!(listeners.slots(Transport::Tcp, 80), [2, 3]);
        assert_eq!(listeners.release_all(ClientId(2)), [(Transport::Tcp, 80)]);
        assert_eq!(listeners.slots(Transport::Tcp, 80), [3]);
    }

    #[test]
    fn reuse_port_is_shared_when_both_ask_and_the_user_is_the_same() {
        let reuse = |client, uid| Listener {
            reuse_port: true,
            uid,
            ..listener(client, client, 80)
        };
        let mut listeners = Listeners::default();
        assert_eq!(listeners.claim(reuse(1, 0)), Ok(()));
        assert_eq!(listeners.claim(reuse(2, 0)), Ok(()));
        assert_eq!(
            listeners.claim(reuse(3, 33)),
            Err(ListenRefused::InUse(ClientId(1)))
        );
        assert_eq!(
            listeners.claim(listener(4, 4, 80)),
            Err(ListenRefused::InUse(ClientId(1)))
        );
    }

    #[test]
    fn a_yielding_listener_gets_connections_only_while_all_yield() {
        let mut listeners = Listeners::default();
        for client in 1..=2 {
            assert_eq!(listeners.claim(listener(client, 5, 80)), Ok(()));
        }
        let mut set = |client, is_on| {
            let done = listeners.set_yielding(ClientId(client), Transport::Tcp, 80, is_on);
            (done, listeners.slots(Transport::Tcp, 80))
        };
        assert_eq!(set(1, true), (true, vec![2]));
        assert_eq!(set(2, true), (false, vec![2]), "the last one stays");
        assert_eq!(set(1, false), (true, vec![1, 2]));
        assert_eq!(set(2, true), (true, vec![1]));
        listeners.release_all(ClientId(1));
        assert_eq!(listeners.slots(Transport::Tcp, 80), [2]);
    }

    #[test]
    fn a_connected_datagram_socket_is_offered_to_a_single_user_only() {
        let datagrams = |client| Listener {
            protocol: Transport::Udp,
            ..listener(client, 5, 80)
        };
        let mut listeners = Listeners::default();
        assert_eq!(listeners.claim(datagrams(1)), Ok(()));
        listeners.set_connected(ClientId(1), 80, true);
        assert_eq!(listeners.slots(Transport::Udp, 80), [1]);
        assert_eq!(listeners.claim(datagrams(2)), Ok(()));
        assert_eq!(listeners.slots(Transport::Udp, 80), [2]);
        listeners.set_connected(ClientId(1), 80, false);
        assert_eq!(listeners.slots(Transport::Udp, 80), [1, 2]);
        // One of two sockets may be unconnected, and open to all peers.
        assert_eq!(listeners.claim(datagrams(1)), Ok(()));
        listeners.set_connected(ClientId(1), 80, true);
        assert_eq!(listeners.slots(Transport::Udp, 80), [1, 2]);
    }

    #[test]
    fn a_port_claimed_twice_is_released_twice() {
        let mut listeners = Listeners::default();
        for _ in 0..2 {
            assert_eq!(listeners.claim(listener(1, 1, 80)), Ok(()));
        }
        let release = |listeners: &mut Listeners| {
            let bound = Bound::new(Ipv4Addr::UNSPECIFIED.into(), 80, 0);
            listeners.release(ClientId(1), Transport::Tcp, bound);
        };
        release(&mut listeners);
        assert_eq!(listeners.slots(Transport::Tcp, 80), [1]);
        release(&mut listeners);
        assert!(listeners.slots(Transport::Tcp, 80).is_empty());
        release(&mut listeners);
        assert_eq!(listeners.claim(listener(2, 2, 80)), Ok(()));
    }
}
