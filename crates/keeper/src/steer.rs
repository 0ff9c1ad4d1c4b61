//! Keeps the steering table consistent with the leases.
//!
//! A frame takes three lookups: exceptions by flow, the listener group or slot of the local port,
//! the keeper. When a port changes hands, flows that stay with their engine get an exception before
//! the table is changed.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use slipstack_device::{DeviceError, Flow, Port, Row, Rule, Steering, TRANSIT_GROUP, Transport};

use crate::leases::{Leases, Route};

/// The rule by which new flows of a port that several engines serve are spread over them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// By a hash of both ends, evenly.
    #[default]
    Hash,
    /// Each TCP port has one engine, assigned in turn. UDP is distributed as by the hash: multicast
    /// datagrams go to every engine.
    Port,
    /// By the hash, in proportion to these shares, which are given by turns to the engines in the
    /// order of their slots.
    Shares(Vec<u16>),
    /// By turns, each new flow the next engine.
    Turns,
    /// By the sender's address.
    Table(Vec<Row>),
    /// By the program in this object file.
    Program(PathBuf),
}

/// In the words of the options, so that two of them can be compared.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |parts: Vec<String>| parts.join(",");
        match self {
            Spread::Hash => f.write_str("hash"),
            Spread::Port => f.write_str("port"),
            Spread::Turns => f.write_str("turns"),
            Spread::Shares(shares) => {
                let shares = shares.iter().map(u16::to_string).collect();
                write!(f, "shares {}", joined(shares))
            }
            Spread::Table(rows) => {
                let row = |it: &Row| format!("{}/{}={}", it.network, it.prefix_len, it.engine);
                write!(f, "table {}", joined(rows.iter().map(row).collect()))
            }
            Spread::Program(path) => write!(f, "program {}", path.display()),
        }
    }
}

impl Spread {
    /// The part that the kernel's programs apply to each new flow, if there is one.
    pub(crate) fn rule(&self) -> Result<Option<Rule>, DeviceError> {
        match self {
            Spread::Hash | Spread::Port | Spread::Shares(_) => Ok(None),
            Spread::Turns => Ok(Some(Rule::Turns)),
            Spread::Table(rows) => Ok(Some(Rule::Table(rows.clone()))),
            Spread::Program(path) => Rule::of_program(path).map(Some),
        }
    }

    /// The engines of a port with their shares.
    fn shares(&self, protocol: Transport, port: u16, slots: &[u16]) -> Vec<(u16, u16)> {
        match self {
            Spread::Port if protocol == Transport::Tcp => {
                let at = usize::from(port).checked_rem(slots.len());
                at.map(|at| (slots[at], 1)).into_iter().collect()
            }
            // For packets that a rule leaves to the hash, and those that stay on the machine.
            Spread::Hash | Spread::Port | Spread::Turns | Spread::Table(_) | Spread::Program(_) => {
                slots.iter().map(|slot| (*slot, 1)).collect()
            }
            Spread::Shares(shares) => {
                let shares = shares.iter().copied().cycle();
                slots.iter().copied().zip(shares).collect()
            }
        }
    }
}

/// A flow and the slot of its engine.
pub type OwnedFlow = (Flow, u16);

/// A port that several engines serve, with the number of its group in the steering tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ListenerGroup {
    pub protocol: Transport,
    pub port: u16,
    pub group: u8,
}

/// Listener groups and exceptions that are in force.
#[derive(Debug, Default)]
pub struct Steer {
    groups: HashMap<(Transport, u16), u8>,
    exceptions: HashMap<(Transport, SocketAddr, SocketAddr), u16>,
    spread: Spread,
    /// The slots that pass packets for others on; `None`: a former keeper's, which are not known.
    transit: Option<Vec<u16>>,
}

/// The number of listener groups in the steering tables: the last one is that of packets for
/// others.
const GROUPS: u8 = TRANSIT_GROUP;

/// Flows of one port stand together.
pub fn order((flow, _): &OwnedFlow) -> (bool, u16) {
    order_of(flow.proto, flow.local.port())
}

fn order_of(proto: Transport, port: u16) -> (bool, u16) {
    (proto == Transport::Udp, port)
}

impl Steer {
    /// Goes on with the groups of a former keeper.
    pub fn with_groups(groups: &[ListenerGroup], spread: Spread) -> Steer {
        Steer {
            groups: groups
                .iter()
                .map(|it| ((it.protocol, it.port), it.group))
                .collect(),
            exceptions: HashMap::new(),
            spread,
            transit: None,
        }
    }

    /// Spreads packets for others over these slots.
    pub fn spread_transit(
        &mut self,
        steering: &Steering,
        slots: &[u16],
    ) -> Result<(), DeviceError> {
        if self.transit.as_deref() != Some(slots) {
            steering.set_group(TRANSIT_GROUP, slots)?;
            self.transit = Some(slots.to_vec());
        }
        Ok(())
    }

    /// Ports that several engines serve.
    pub fn grouped(&self) -> impl Iterator<Item = (Transport, u16)> + '_ {
        self.groups.keys().copied()
    }

    pub fn groups(&self) -> Vec<ListenerGroup> {
        let mut groups: Vec<_> = self
            .groups
            .iter()
            .map(|((protocol, port), group)| ListenerGroup {
                protocol: *protocol,
                port: *port,
                group: *group,
            })
            .collect();
        groups.sort_unstable();
        groups
    }

    /// Brings the entry of one port in line with the leases. `flows` are those of living engines,
    /// sorted by [`order`].
    pub fn apply(
        &mut self,
        steering: &Steering,
        leases: &Leases,
        protocol: Transport,
        port: u16,
        flows: &[OwnedFlow],
    ) -> Result<(), DeviceError> {
        let wanted = order_of(protocol, port);
        let from = flows.partition_point(|flow| order(flow) < wanted);
        let concerned = &flows[from..];
        let concerned = &concerned[..concerned.partition_point(|flow| order(flow) == wanted)];
        match leases.route(protocol, port) {
            Route::Keeper => self.set_port(steering, protocol, port, Port::Keeper, 0, concerned),
            Route::Slot(slot) => {
                self.set_port(steering, protocol, port, Port::Slot(slot), slot, concerned)
            }
            Route::Shared(slots) => self.share_port(steering, protocol, port, &slots, concerned),
        }
    }

    fn set_port(
        &mut self,
        steering: &Steering,
        protocol: Transport,
        port: u16,
        to: Port,
        slot: u16,
        flows: &[OwnedFlow],
    ) -> Result<(), DeviceError> {
        let others: Vec<OwnedFlow> = flows
            .iter()
            .filter(|(_, owner)| *owner != slot)
            .copied()
            .collect();
        self.except(steering, &others)?;
        steering.set_port(protocol, port, to)?;
        if let Some(group) = self.groups.remove(&(protocol, port)) {
            steering.set_group(group, &[])?;
        }
        Ok(())
    }

    fn share_port(
        &mut self,
        steering: &Steering,
        protocol: Transport,
        port: u16,
        slots: &[u16],
        flows: &[OwnedFlow],
    ) -> Result<(), DeviceError> {
        let group = match self.groups.get(&(protocol, port)) {
            Some(group) => *group,
            None => {
                let Some(group) = self.free_group() else {
                    // No group is left: the first engine serves the port alone.
                    let slot = slots.first().copied().unwrap_or(0);
                    return self.set_port(steering, protocol, port, Port::Slot(slot), slot, flows);
                };
                // Nothing points to the group yet: its buckets can be laid out in peace.
                steering.share_group(group, &self.spread.shares(protocol, port, slots))?;
                self.groups.insert((protocol, port), group);
                let all: Vec<OwnedFlow> = flows.to_vec();
                self.except(steering, &all)?;
                return steering.set_port(protocol, port, Port::Group(group));
            }
        };
        let shares = self.spread.shares(protocol, port, slots);
        let moves = steering.group_moves(group, &shares)?;
        let moved: Vec<OwnedFlow> = flows
            .iter()
            .filter(|(flow, owner)| {
                let bucket = steering.bucket(flow.local, flow.remote);
                moves.iter().any(|m| m.bucket == bucket && m.from == *owner)
            })
            .copied()
            .collect();
        self.except(steering, &moved)?;
        steering.share_group(group, &shares)?;
        steering.set_port(protocol, port, Port::Group(group))
    }

    fn free_group(&self) -> Option<u8> {
        (0..GROUPS).find(|group| !self.groups.values().any(|used| used == group))
    }

    /// Directs flows to slots, whatever the tables say.
    pub fn except(&mut self, steering: &Steering, flows: &[OwnedFlow]) -> Result<(), DeviceError> {
        if flows.is_empty() {
            return Ok(());
        }
        steering.add_exceptions(flows)?;
        for (flow, slot) in flows {
            self.exceptions
                .insert((flow.proto, flow.local, flow.remote), *slot);
        }
        Ok(())
    }

    /// Goes on with the exceptions of a former keeper: flows that the tables alone would send
    /// elsewhere have one, to the kernel too.
    pub fn inherit(&mut self, steering: &Steering, flows: &[OwnedFlow]) -> Result<(), DeviceError> {
        let excepted: Vec<OwnedFlow> = flows
            .iter()
            .filter(|(flow, owner)| {
                steering.find_by_port(flow) != *owner
                    || steering.is_kernel_port(flow.proto, flow.local.port())
                    || !steering.is_own(flow.local.ip())
            })
            .copied()
            .collect();
        self.except(steering, &excepted)
    }

    /// Removes the exceptions of flows that have ended. `is_alive` tells whether a flow still
    /// exists. Returns the TCP ports of those that have ended.
    pub fn forget_ended(
        &mut self,
        steering: &Steering,
        is_alive: impl Fn(&Flow, u16) -> bool,
    ) -> Vec<u16> {
        let mut ports = Vec::new();
        self.exceptions.retain(|(proto, local, remote), slot| {
            let flow = Flow {
                proto: *proto,
                local: *local,
                remote: *remote,
            };
            if is_alive(&flow, *slot) {
                return true;
            }
            // An exception that is already gone needs no removal.
            let _ = steering.remove_exception(&flow);
            if *proto == Transport::Tcp {
                ports.push(local.port());
            }
            false
        });
        ports
    }

    /// Removes the exceptions that lead to a slot whose engine is gone: later connections from the
    /// same ports would not be read.
    pub fn forget_slot(&mut self, steering: &Steering, gone: u16) {
        self.forget_ended(steering, |_, slot| slot != gone);
    }

    pub fn has_exceptions(&self) -> bool {
        !self.exceptions.is_empty()
    }
}
