//! One core's loop: a stack, a device slot and the programs that use them.
//!
//! An [`Engine`] is single-threaded; the placement decides which thread drives it: a waiting thread
//! of the program itself ([`InProcess`]) or the loop of an instance ([`instance::run`]). Both use
//! the same channel, so the program's side cannot tell the difference ([`Remote`]).

mod accept_queue;
mod alone;
mod arriving;
mod authority;
mod carrying;
mod choosing;
mod chores;
mod client;
mod commands;
mod datagrams;
mod departed;
mod detach;
mod drained;
mod effects;
mod engine;
mod environment;
mod filter_log;
mod filtering;
mod frames;
mod groups;
mod homing;
mod inprocess;
mod inquiry;
mod inside;
pub mod instance;
mod late;
mod lent;
mod load;
mod local;
mod neighbours;
mod network;
mod options;
mod outgoing;
mod owners;
mod partial;
mod passing;
mod ports;
mod records;
mod remote;
mod sharers;
mod stats;
mod strays;
mod streams;
pub mod supervisor;
mod views;
mod waiting;
mod yielding;

pub use authority::{Asked, NeighbourTable, PortAuthority, PortClaim, Renewed};
pub use carrying::carried_head;
pub use client::ClientId;
pub use detach::Handover;
pub use engine::{Engine, Setup, Turn};
pub use filtering::HeldFilter;
pub use inprocess::InProcess;
pub use inquiry::answer_of_stack;
pub use lent::UserState;
pub use local::Interconnect;
pub use records::time_wait_of;
pub use remote::Remote;
pub use slipstack_stack::{
    Congestion, EcnMode, FastOpenConfig, Instant, MtuProbing, NeighbourConfig, NetworkState,
    PortRange, Role, Scatter, StackConfig, SynCookies, TcpConfig,
};
pub use stats::{EngineCounters, SocketView};
pub use strays::stray_frame;
