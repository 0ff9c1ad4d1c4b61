//! What `slipstack status` and `slipstack why` show.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::{DeviceKind, Protocol};

/// One keeper with everything attached to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    pub keeper_pid: u32,
    pub standby_pid: Option<u32>,
    pub device: DeviceReport,
    pub engines: Vec<EngineReport>,
    pub programs: Vec<ProgramReport>,
    pub instances: Vec<InstanceReport>,
    pub ports: Vec<PortReport>,
    /// Connections whose program has ended and that are being carried out.
    pub orphans: u32,
    /// Lists were cut to fit a message.
    pub is_truncated: bool,
    /// Name and value of every counter that is not zero.
    pub counters: Vec<(String, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceReport {
    pub interface: String,
    pub kind: Option<DeviceKind>,
    pub mac: [u8; 6],
    pub mtu: u16,
    pub addresses: Vec<(Ipv4Addr, u8)>,
    pub host: Option<Ipv4Addr>,
    pub gateway: Option<Ipv4Addr>,
    pub slots: u16,
    pub slots_leased: u16,
}

/// One engine: a leased slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineReport {
    pub slot: u16,
    pub pid: u32,
    pub program: String,
    /// Name of the instance; `None`: in the program.
    pub instance: Option<String>,
    /// Blocks of outgoing ports.
    pub ports: Vec<(u16, u16)>,
    pub flows: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramReport {
    pub pid: u32,
    pub uid: u32,
    pub program: String,
    /// Slot of the engine that serves it, if it has one of its own.
    pub slot: Option<u16>,
    /// Instance it is attached to.
    pub instance: Option<String>,
    pub sockets: Vec<SocketReport>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InstanceReport {
    pub name: String,
    pub pid: u32,
    pub engines: u32,
    pub programs: Vec<ProgramReport>,
    pub counters: Vec<(String, u64)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortReport {
    pub protocol: Protocol,
    pub port: u16,
    pub address: Ipv4Addr,
    pub pids: Vec<u32>,
}

/// One socket of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SocketReport {
    /// Descriptor in the program, if it is known.
    pub fd: Option<i32>,
    /// "stack", "kernel", "both", "undecided".
    pub place: String,
    /// "tcp", "udp", …
    pub kind: String,
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    /// A sentence: why it is there.
    pub why: String,
}

/// Everything that is known of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhyReport {
    pub program: ProgramReport,
    pub interface: String,
    pub addresses: Vec<(Ipv4Addr, u8)>,
}
