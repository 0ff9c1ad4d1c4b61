//! The protocol core: interfaces, neighbours, routes, IPv4 and IPv6, ICMP, UDP and TCP.
//!
//! The core has no clock, no threads and no input or output: frames, timers and calls are methods
//! of [`Stack`]; frames, bytes and events go out through [`Effects`]. Time and randomness are
//! arguments, so that a simulated world is exactly repeatable.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

extern crate alloc;

mod announce;
mod arp;
mod bound;
pub mod choices;
mod chooser;
pub mod config;
mod configured;
pub mod counters;
mod default_router;
mod destination;
pub mod effects;
pub mod error;
pub mod fib;
pub mod filter;
mod filtering;
mod forward;
mod fragments;
mod frames;
pub mod groups;
mod held;
mod icmp;
mod icmp_limit;
mod icmpv6;
mod identification;
pub mod ids;
pub mod ip;
mod ipv4;
mod ipv6;
mod ipv6_input;
mod ndp;
mod neighbour;
mod network;
pub mod network_layer;
pub mod options;
mod path_mtu;
pub mod rate;
mod reassembly;
pub mod rng;
pub mod route;
pub mod route6;
mod router;
mod scatter;
mod slaac;
mod sockets;
mod stack;
mod stray;
pub mod tcp;
pub mod time;
mod traffic;
mod transparent;
mod tunable;
mod udp;
pub mod wheel;

pub use bound::Bound;
pub use chooser::{Chooser, ChooserCode, Member};
pub use config::{
    EcnMode, FastOpenConfig, MtuProbing, NeighbourConfig, Role, SlaacConfig, StackConfig,
    SynCookies, TcpConfig,
};
pub use configured::{routes4, routes6};
pub use counters::{Counter, Counters};
pub use effects::{
    Absent, ConnectionOrigin, DatagramIn, DatagramOut, Effects, Event, FrameOut, Gso,
    PartialChecksum, Payload, RxChecksum, RxMeta, TxOffload,
};
pub use error::{Reason, SocketError};
pub use fib::Choice;
pub use filtering::FilterRules;
pub use groups::GroupFilter;
pub use ids::{ConnId, ListenerId, UdpId};
pub use ip::{Ends, IcmpDetails, IpMeta, LinkedGroup, PathCause, PathError};
pub use network_layer::{Cx, NetworkLayer, NextHop, OutPacket, OutSegment, Output, Path};
pub use options::{
    CloseMode, Congestion, GroupChange, KeepAlive, ListenOptions, MtuDiscovery, MulticastOption,
    PortHold, PortRange, SocketOption, SocketOptions, UdpOptions,
};
pub use scatter::Scatter;
pub use slaac::Identifiers;
pub use slipstack_network::{
    Interface, NeighbourEntry, NetworkState, RouteEntry, RuleAction, RuleEntry, RuleInput,
};
pub use slipstack_terms::CarriedRange;
pub use slipstack_terms::{Learnt, LearntAddress, Redirected, RouteRefusal, SocketState, TcpInfo};
pub use stack::Stack;
pub use stray::{datagram_frames, stray_frame};
pub use tcp::{
    ConnectionImage, EndedConnection, HalfOpenImage, HalfOpenRecord, IDLE_BYTES, Progress,
    TcpSizes, TimeWaitImage,
};
pub use time::Instant;
pub use traffic::LinkTraffic;
pub use tunable::{Effect, Tunable};
