//! TCP (RFC 9293).
//!
//! | what | file | RFCs |
//! |---|---|---|
//! | segments in, timers, flush | `dispatch.rs`, `passive.rs` | 9293 3.10.7 |
//! | calls of sockets | `calls.rs` | 9293 3.10.1–3.10.6 |
//! | steps of a segment's arrival | `input/` | 9293 3.10.7.4, 5961, 7323, 2018, 2883 |
//! | what is sent next | `output/`, `attendance.rs` | 9293 3.7.4, 3.8.6, 5681, 7323 |
//! | opening | `connect.rs`, `syn.rs`, `listen.rs` | 9293 3.5, 4987, 6528, 7323 |
//! | loss and retransmission | `scoreboard.rs`, `rack.rs`, `recovery.rs`, `resend.rs`, `rto.rs`, `rtt.rs` | 8985, 6937, 6675, 6582, 6298, 4015 |
//! | congestion control | `cc/` | 5681, 9438, 6928, 7661 |
//! | closing | `input/fin.rs`, `timewait.rs`, `keepalive.rs` | 9293 3.6, 1337, 6191 |
//! | path | `pmtud.rs` | 1191, 5927 |
//! | moving a connection | `image.rs` | |
//!
//! Three storages: SYN entries, connection blocks, TIME-WAIT entries. `flow.rs` finds the one that a segment is for.

mod assembler;
mod attendance;
mod calls;
mod cc;
mod connect;
mod connection;
mod dispatch;
mod flow;
mod image;
mod info;
mod input;
mod isn;
mod keepalive;
mod listen;
mod output;
mod passive;
mod phase;
mod pmtud;
mod ports;
mod rack;
mod recovery;
mod resend;
mod rto;
mod rtt;
mod scoreboard;
mod segment;
mod seq;
mod slab;
mod syn;
mod timers;
mod timewait;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use connection::{Connection, InFlight};
use flow::{Demux, FlowHasher, Place};
pub use image::ConnectionImage;
pub use info::{TcpInfo, TcpState};
use listen::Listeners;
use ports::Ports;
use slab::Slab;
use syn::SynTable;
use timewait::TimeWaits;

use crate::config::StackConfig;
use crate::rate::RateLimit;
use crate::rng::Rng;
use crate::time::Instant;
use crate::wheel::Wheel;

/// All TCP state of one stack.
#[derive(Debug)]
pub struct Tcp {
    conns: Slab<Connection>,
    syns: SynTable,
    time_waits: TimeWaits,
    listeners: Listeners,
    ports: Ports,
    demux: Demux,
    hasher: FlowHasher,
    wheel: Wheel,
    /// The connection that the last segment was for.
    latest: u32,
    /// Connections for the next flush.
    dirty: Vec<u32>,
    /// RFC 5961 10: challenge ACKs of the whole stack.
    challenges: RateLimit,
    resets: RateLimit,
    orphans: u32,
    /// For connections that begin to send.
    #[expect(
        clippy::vec_box,
        reason = "boxes go to connections and come back whole"
    )]
    flights: Vec<Box<InFlight>>,
}

impl Tcp {
    pub fn new(config: &StackConfig, rng: &mut Rng, now: Instant) -> Tcp {
        let tcp = &config.tcp;
        Tcp {
            conns: Slab::new(tcp.conns_max),
            syns: SynTable::new(tcp.syn_entries_max),
            time_waits: TimeWaits::new(tcp.time_waits_max),
            listeners: Listeners::new(tcp.listeners_max, rng),
            ports: Ports::new(config.ephemeral, rng),
            demux: Demux::default(),
            hasher: FlowHasher::new(rng),
            wheel: Wheel::new(now),
            latest: 0,
            dirty: Vec::new(),
            challenges: RateLimit::new(tcp.challenge_acks_per_second, now),
            resets: RateLimit::new(tcp.resets_per_second, now),
            orphans: 0,
            flights: Vec::new(),
        }
    }

    pub fn set_ephemeral(&mut self, lo: u16, hi: u16) {
        self.ports.set_range(lo, hi);
    }

    /// How many connection blocks, SYN entries and TIME-WAIT entries there are.
    pub fn sizes(&self) -> (usize, usize, usize) {
        (
            self.conns.len(),
            self.syns.entries.len(),
            self.time_waits.entries.len(),
        )
    }

    fn find_place(&self, key: &flow::FlowKey, hash: u64) -> Option<Place> {
        self.demux.find(hash, |place| match place {
            Place::Connection(i) => self.conns.at(i).is_some_and(|c| c.key == *key),
            Place::Syn(i) => self.syns.entries.at(i).is_some_and(|e| e.key == *key),
            Place::TimeWait(i) => self.time_waits.entries.at(i).is_some_and(|t| t.key == *key),
        })
    }
}
