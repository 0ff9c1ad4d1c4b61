//! Attachment of a program to an engine: finds or starts the keeper, leases a slot and builds an
//! engine in this process, or connects to an instance. Also the requests of the command line to
//! keepers and instances.

mod absent;
pub mod admin;
mod assembly;
pub mod capture;
mod client;
mod door;
mod error;
mod inherited;
pub mod inquiry;
mod instance;
mod joining;
mod keeper;
mod launch;
mod link;
mod namespace;
mod network;
mod planned;
pub mod program;
mod queues;
mod room;
mod serving;
mod spread;
mod supervisor;
mod ticket;
mod ways;

#[cfg(test)]
mod tests;

pub use client::{client, client_with};
pub use error::Error;
pub use inherited::inherited_sockets;
pub use instance::instance_main;
pub use keeper::keeper_main;
pub use launch::{Launched, launch};
pub use namespace::network_namespace;
pub use network::wanted_network;
pub use planned::planned;
pub use queues::{HookMaker, Queues};
pub use serving::{
    HangupSignals, ServiceContext, Serving, Signals, Watch, hold_hang_ups, hold_signals,
    hold_signals_and_hang_ups, serve,
};
/// The network of a device, and its changes.
pub use slipstack_channel::control::net;
pub use slipstack_device::DeviceCounters;
pub use slipstack_device::hooked::{FrameHook, LinkId, TakeDone, Verdict};
pub use slipstack_mem::process::abort_at_panics;
