//! Local ports for the stack to choose: from the blocks that are leased to this engine, or single
//! ones from the keeper if the program allows none of those, or if every block is in use.

use std::net::{IpAddr, SocketAddr};

use slipstack_channel::control::net::NetworkState;
use slipstack_channel::{SocketError, Transport};
use slipstack_stack::{
    ConnId, Instant, PortHold, PortRange, SocketOptions, Tunable, UdpId, UdpOptions,
};

use crate::authority::PortClaim;
use crate::client::Bound;
use crate::effects::Fx;
use crate::engine::Engine;
use crate::owners::Owner;
use crate::streams::ANY;

/// Ports that are requested one by one.
const SINGLE_MAX: usize = 64;
/// Chosen UDP ports that another program has claimed since they were leased.
const ELSEWHERE_MAX: usize = 16;

impl Engine {
    /// Reserves a TCP port, leasing more outgoing ones when those we have are used up.
    pub(crate) fn reserve_port(
        &mut self,
        hold: PortHold,
        port: u16,
        reuse: bool,
        range: PortRange,
    ) -> Result<u16, SocketError> {
        let mut result = self.stack.tcp_reserve_port(hold, port, reuse, range);
        if port == 0 {
            for round in 0..self.rounds(range) {
                if result != Err(SocketError::AddrNotAvailable) || !self.next_ports(round) {
                    break;
                }
                result = self.stack.tcp_reserve_port(hold, port, reuse, range);
            }
            if result == Err(SocketError::AddrNotAvailable) {
                // Claimed when it is used.
                let mut ports = self.single_ports(range).into_iter();
                let reserve = |port| self.stack.tcp_reserve_port(hold, port, reuse, range).ok();
                result = ports.find_map(reserve).ok_or(SocketError::AddrNotAvailable);
            }
        }
        result
    }

    /// Connects from `local`, or from a port that is picked.
    pub(crate) fn connect_from(
        &mut self,
        now: Instant,
        owner: Owner,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &SocketOptions,
    ) -> Result<ConnId, SocketError> {
        self.judge_homing();
        let is_picked = local.is_none_or(|addr| addr.port() == 0);
        let mut rounds = 0;
        loop {
            let mut fx = Fx::new(&mut self.env, &mut *self.device);
            let outcome = self.stack.tcp_connect(now, local, remote, options, &mut fx);
            match outcome {
                Err(SocketError::AddrNotAvailable) if is_picked => {}
                outcome => return outcome,
            }
            if rounds == self.rounds(options.port_range) || !self.next_ports(rounds) {
                break;
            }
            rounds += 1;
        }
        let any = match remote {
            SocketAddr::V4(_) => ANY,
            SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], 0)),
        };
        let from = local.unwrap_or(any).ip();
        self.connect_from_single(now, owner, from, remote, options)
    }

    /// Connects from a port that is claimed for this connection.
    fn connect_from_single(
        &mut self,
        now: Instant,
        owner: Owner,
        from: IpAddr,
        remote: SocketAddr,
        options: &SocketOptions,
    ) -> Result<ConnId, SocketError> {
        for port in self.single_ports(options.port_range) {
            let addr = SocketAddr::new(from, port);
            if self.stack.tcp_is_held(port) || self.is_on_other_engine(addr, remote) {
                continue;
            }
            let claim = PortClaim {
                addr,
                link: options.link,
                is_v6_only: false,
                is_reuse_port: true,
            };
            let is_announced = match self.announce(Transport::Tcp, &claim, false) {
                Ok(is_announced) => is_announced,
                Err(SocketError::AddrInUse) => continue,
                Err(refusal) => return Err(refusal),
            };
            // Answers might go to another engine that has claimed the port, too.
            let interconnect = self.env.local.interconnect.as_ref();
            let has_others = interconnect.is_some_and(|it| it.has_others(Transport::Tcp, port));
            // The claim makes an exception of a connection that another engine has from the port.
            let outcome = match has_others || self.is_on_other_engine(addr, remote) {
                true => Err(SocketError::FlowExists),
                false => {
                    let mut fx = Fx::new(&mut self.env, &mut *self.device);
                    self.stack
                        .tcp_connect(now, Some(addr), remote, options, &mut fx)
                }
            };
            if let Ok(conn) = outcome {
                let bound = Bound {
                    addr,
                    is_v6_only: false,
                    is_shared: false,
                    link: options.link,
                    is_reserved: false,
                    is_picked: false,
                    is_announced,
                    flow: None,
                };
                self.note_bound(owner, bound);
                return Ok(conn);
            }
            if let (true, Some(ports)) = (is_announced, &self.ports) {
                ports.listen_off((addr, options.link), Transport::Tcp, false);
            }
            match outcome {
                Err(SocketError::FlowExists) => {}
                outcome => return outcome,
            }
        }
        Err(SocketError::AddrNotAvailable)
    }

    /// Binds a UDP socket and requests its frames. Returns whether that took a claim.
    pub(crate) fn udp_bind(
        &mut self,
        addr: SocketAddr,
        options: &UdpOptions,
    ) -> Result<(UdpId, bool), SocketError> {
        let outcome = self.udp_pick(addr, options);
        match outcome {
            Err(SocketError::AddrNotAvailable) if addr.port() == 0 => {
                let ports = self.single_ports(options.socket.port_range);
                // A socket without a requested port shares none.
                let alone = UdpOptions {
                    is_shared: false,
                    ..options.clone()
                };
                ports
                    .into_iter()
                    .map(|port| self.udp_claim(SocketAddr::new(addr.ip(), port), &alone))
                    .find(|outcome| *outcome != Err(SocketError::AddrInUse))
                    .unwrap_or(outcome)
            }
            outcome => outcome,
        }
    }

    fn udp_claim(
        &mut self,
        addr: SocketAddr,
        options: &UdpOptions,
    ) -> Result<(UdpId, bool), SocketError> {
        let bound = self.stack.udp_bind(addr, options.clone());
        let id = bound?;
        let local = self.stack.udp_local(id).unwrap_or(addr);
        let claim = PortClaim {
            addr: local,
            link: options.socket.link,
            is_v6_only: options.is_v6_only,
            is_reuse_port: options.is_shared,
        };
        // Datagrams may wait at the keeper since the program's bind, and it hands them over when
        // it hears of the socket.
        match self.announce(Transport::Udp, &claim, true) {
            Ok(is_announced) => Ok((id, is_announced)),
            Err(refusal) => {
                let _ = self.stack.udp_close(id);
                Err(refusal)
            }
        }
    }

    /// Binds to `addr`, or to a port of those that are leased.
    fn udp_pick(
        &mut self,
        addr: SocketAddr,
        options: &UdpOptions,
    ) -> Result<(UdpId, bool), SocketError> {
        if addr.port() != 0 {
            return self.udp_claim(addr, options);
        }
        let mut elsewhere = Vec::new();
        let mut rounds = 0;
        let outcome = loop {
            match self.stack.udp_bind(addr, options.clone()) {
                Ok(id) => {
                    let local = self.stack.udp_local(id).unwrap_or(addr);
                    if self.env.local.has_datagrams(local.port()) {
                        break Ok((id, false));
                    }
                    elsewhere.push(id);
                    if elsewhere.len() == ELSEWHERE_MAX {
                        break Err(SocketError::AddrNotAvailable);
                    }
                }
                Err(SocketError::AddrNotAvailable)
                    if rounds < self.rounds(options.socket.port_range)
                        && self.next_ports(rounds) =>
                {
                    rounds += 1;
                }
                Err(error) => break Err(error),
            }
        };
        for id in elsewhere {
            let _ = self.stack.udp_close(id);
        }
        outcome
    }

    /// Number of times that [`Engine::next_ports`] may help: a new block would hardly have one of
    /// the few ports that a program allows.
    fn rounds(&self, range: PortRange) -> usize {
        let is_any = range == PortRange::default();
        self.port_blocks.len() - usize::from(!is_any)
    }

    /// Returns consecutive ports from a random start that are in none of our blocks.
    fn single_ports(&mut self, range: PortRange) -> Vec<u16> {
        let ports = self.stack.ports_of(range);
        let ports = ports.filter(|port| !self.is_leased(*port));
        ports.take(SINGLE_MAX).collect()
    }

    pub(crate) fn port_range(&mut self, owner: Owner) -> PortRange {
        let socket = self.env.socket(owner);
        let options = socket.and_then(|socket| socket.options.as_deref());
        options.map_or(PortRange::default(), |options| options.port_range)
    }

    /// Switches to another block of outgoing ports: first those leased already, then a new one.
    fn next_ports(&mut self, round: usize) -> bool {
        if round + 1 < self.port_blocks.len() {
            self.port_blocks.rotate_left(1);
        } else {
            let Some(block) = self.lease_block() else {
                return false;
            };
            self.port_blocks.push(block);
        }
        if let Some(&(low, high)) = self.port_blocks.last() {
            self.stack.add_ephemeral(low, high);
        }
        true
    }

    /// Leases a block with ports of the stack's range, which may be another one than the pool.
    fn lease_block(&self) -> Option<(u16, u16)> {
        let ports = self.ports.as_ref()?;
        let Some(pool) = self.stack.scatter().pool() else {
            return ports.lease_ports();
        };
        let range = self.stack.config().ports;
        let common = PortRange {
            first: range.first.max(pool.first),
            last: range.last.min(pool.last),
        };
        // The ports of a block of the pool lie all over it: of 256 eight or more are in the range.
        let is_likely = common.first <= common.last && common.count() * 32 >= pool.count();
        let leased = is_likely.then(|| ports.lease_ports()).flatten();
        if leased.is_some() || common == range {
            return leased;
        }
        ports.lease_ports_beyond(range)
    }

    /// Chooses from the kernel's range of local ports from now on, unless the program or an
    /// operator has chosen another one than the kernel's `before`, which is that of the pool at
    /// first.
    pub(crate) fn follow_local_ports(
        &mut self,
        before: Option<(u16, u16)>,
        network: &NetworkState,
    ) {
        let before = before.map(|(first, last)| PortRange { first, last });
        let followed = before.or(self.stack.scatter().pool());
        let is_followed = followed == Some(self.stack.config().ports);
        if let (true, Some((first, last))) = (is_followed, network.local_ports) {
            self.stack.tune(Tunable::PortFirst, first.into());
            self.stack.tune(Tunable::PortLast, last.into());
        }
    }

    pub(crate) fn is_leased(&self, port: u16) -> bool {
        let place = self.stack.scatter().place(port);
        let mut blocks = self.port_blocks.iter();
        blocks.any(|&(low, high)| (low..=high).contains(&place))
    }

    /// Ends a closed socket that has no connection, or none any more (`is_over`).
    pub(crate) fn free(&mut self, owner: Owner, is_over: bool) {
        self.unbind(owner, is_over);
        self.release(owner);
    }
}
