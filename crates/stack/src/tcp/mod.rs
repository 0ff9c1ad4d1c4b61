//! TCP (RFC 9293).
//!
//! | what | file | RFCs |
//! |---|---|---|
//! | segments in, timers, flush | `predict.rs`, `dispatch.rs`, `passive.rs` | 9293 3.10.7 |
//! | calls of sockets | `calls.rs` | 9293 3.10.1–3.10.6 |
//! | steps of a segment's arrival | `input/` | 9293 3.10.7.4, 5961, 7323, 2018, 2883 |
//! | what is sent next | `output/`, `attendance.rs` | 9293 3.7.4, 3.8.6, 5681, 7323 |
//! | opening | `connect.rs`, `syn.rs`, `saved_syns.rs`, `cookie.rs`, `cookie_open.rs`, `listen.rs` | 9293 3.5, 4987, 6528, 7323 |
//! | opening with data | `fast_open/` | 7413 |
//! | loss and retransmission | `scoreboard/`, `rack.rs`, `recovery.rs`, `undo.rs`, `resend.rs`, `rto.rs`, `rtt.rs` | 8985, 6937, 6675, 6582, 6298, 5682, 4015, 3042 |
//! | congestion control | `cc/`, `delivery.rs`, `pacing.rs` | 5681, 3465, 9438, 9406, 6928, 7661, 8257, draft-ietf-ccwg-bbr |
//! | marks of routers | `ecn.rs` | 3168, 8257 |
//! | user timeouts of both sides | `user_timeout.rs` | 5482 |
//! | bounds of timers and of hops | `bounds.rs` | 5082 |
//! | urgent data | `urgent.rs` | 9293 3.8.5, 6093 |
//! | records (MSG_EOR) | `records.rs` | |
//! | closing | `input/fin.rs`, `timewait.rs`, `keepalive.rs` | 9293 3.6, 1337, 6191 |
//! | path | `pmtud.rs`, `mtu_search.rs` | 1191, 5927, 4821, 8899 |
//! | moving a connection | `image.rs`, `image/`, `half_open.rs`, `half_open/`, `timewait/image.rs` | 5961, 6191 |
//! | what an operator sees and ends | `listing.rs` | |
//! | what must always hold | `audit.rs` | |
//!
//! Three storages: SYN entries, connection blocks, TIME-WAIT entries. `flow.rs` finds the one that
//! a segment is for.

mod acknowledged;
mod arrival;
mod assembler;
mod attendance;
mod audit;
mod bounds;
mod calls;
mod cc;
mod connect;
mod connection;
mod cookie;
mod cookie_open;
mod delivery;
mod dispatch;
mod ecn;
mod ended;
mod establish;
mod fast_open;
mod figures;
mod flow;
mod free_ports;
mod half_open;
mod image;
mod in_flight;
mod info;
mod input;
mod isn;
mod keepalive;
mod latest;
mod listen;
mod listing;
mod mtu_search;
mod numbers;
mod options;
mod output;
mod pacing;
mod passive;
mod phase;
mod pmtud;
mod ports;
mod predict;
mod rack;
mod records;
mod recovery;
mod resend;
mod resend_timer;
mod room;
mod rto;
mod rtt;
mod saved_syns;
mod scoreboard;
mod segment;
mod seq;
mod sizes;
mod slab;
mod syn;
mod timers;
mod timewait;
mod train;
mod trains;
mod undo;
mod urgent;
mod user_timeout;
mod verdict;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use connection::Connection;
use cookie::CookieJar;
pub use ended::{Ended, EndedConnection};
use fast_open::{CookieKeys, ServerCache};
pub(crate) use flow::FlowKey;
use flow::{Demux, FlowHasher, FlowState};
pub use half_open::{HalfOpenImage, HalfOpenRecord};
pub use image::{ConnectionImage, Progress};
use in_flight::InFlight;
use latest::Latest;
use listen::Listeners;
use ports::Ports;
use saved_syns::SavedSyns;
use slab::Slab;
use slipstack_wire::rss::QueueMap;
use syn::SynTable;
pub use timewait::TimeWaitImage;
use timewait::TimeWaits;
pub(crate) use train::State as TrainState;
use train::Train;

use crate::config::StackConfig;
use crate::ids::ConnId;
use crate::rate::RateLimit;
use crate::rng::Rng;
use crate::time::Instant;
use crate::wheel::Wheel;

/// The numbers of entries in TCP's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSizes {
    pub connections: usize,
    pub half_open: usize,
    pub time_wait: usize,
}

/// All TCP state of one stack.
#[derive(Debug)]
pub struct Tcp {
    conns: Slab<Connection>,
    syns: SynTable,
    time_waits: TimeWaits,
    listeners: Listeners,
    cookies: CookieJar,
    /// Makes the cookies of our listeners.
    fast_open: CookieKeys,
    /// Servers that have given us cookies.
    fast_open_servers: ServerCache,
    ports: Ports,
    demux: Demux,
    hasher: FlowHasher,
    wheel: Wheel,
    latest: Latest,
    pub(crate) train: Train,
    /// Packed places for which the next flush sends.
    dirty: Vec<u32>,
    /// RFC 5961 7: challenge ACKs of the whole stack.
    challenges: RateLimit,
    resets: RateLimit,
    orphans: u32,
    ended: Ended,
    /// For connections that begin to send.
    #[expect(
        clippy::vec_box,
        reason = "boxes go to connections and come back whole"
    )]
    flights: Vec<Box<InFlight>>,
    /// A socket has had a smallest hop limit, so that packets are checked for it.
    checks_hops: bool,
    saved_syns: SavedSyns,
}

/// An idle connection's entry, its timer and its place in the demultiplexer, at any fill level of
/// the latter. Rings, records and ranges are temporary; this remains.
pub const IDLE_BYTES: usize =
    Slab::<Connection>::ENTRY_BYTES + Wheel::TIMER_BYTES + Demux::ENTRY_BYTES_MAX;
const _: () = assert!(IDLE_BYTES <= 512);

/// Listeners of a stack at most.
const LISTENERS_MAX: u32 = 65_536;

impl Tcp {
    pub fn new(config: &StackConfig, rng: &mut Rng, now: Instant) -> Tcp {
        let tcp = &config.tcp;
        Tcp {
            conns: Slab::new(tcp.conns_max),
            syns: SynTable::new(tcp.syn_entries_max),
            time_waits: TimeWaits::new(tcp.time_waits_max),
            listeners: Listeners::new(LISTENERS_MAX),
            cookies: CookieJar::new(rng, now),
            fast_open: CookieKeys::new(rng, now),
            fast_open_servers: ServerCache::new(rng),
            ports: Ports::new(config.ephemeral, config.scatter, rng),
            demux: Demux::default(),
            hasher: FlowHasher::new(rng, config.sequence_key),
            wheel: Wheel::new(now),
            latest: Latest::default(),
            train: Train::default(),
            dirty: Vec::new(),
            challenges: RateLimit::new(tcp.challenge_acks_per_second, now),
            resets: RateLimit::new(tcp.resets_per_second, now),
            orphans: 0,
            ended: Ended::default(),
            flights: Vec::new(),
            checks_hops: false,
            saved_syns: SavedSyns::default(),
        }
    }

    /// Returns whether a socket holds this port without a connection, at any address.
    pub fn is_held(&self, port: u16) -> bool {
        self.ports.is_held(port)
    }

    pub fn set_ephemeral(&mut self, lo: u16, hi: u16) {
        self.ports.set_range(lo, hi);
    }

    pub fn add_ephemeral(&mut self, lo: u16, hi: u16) {
        self.ports.add_range(lo, hi);
    }

    pub fn set_queue_map(&mut self, map: Option<QueueMap>) {
        self.ports.set_queue_map(map);
    }

    pub fn sizes(&self) -> TcpSizes {
        TcpSizes {
            connections: self.conns.len(),
            half_open: self.syns.entries.len(),
            time_wait: self.time_waits.entries.len(),
        }
    }

    /// Returns whether there is a connection between these ends, or what is left of one.
    pub fn has_place(&self, key: &flow::FlowKey) -> bool {
        self.find_place(key, self.hasher.table(key)).is_some()
    }

    /// Returns the connection between these ends.
    pub fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<ConnId> {
        let key = flow::FlowKey::new(local.ip(), local.port(), remote.ip(), remote.port());
        match self.find_place(&key, self.hasher.table(&key))? {
            FlowState::Connection(index) => self.conns.at(index).map(|conn| conn.id),
            FlowState::Syn(_) | FlowState::TimeWait(_) => None,
        }
    }

    fn find_place(&self, key: &flow::FlowKey, hash: u64) -> Option<FlowState> {
        self.demux.find(hash, |place| match place {
            FlowState::Connection(i) => self.conns.at(i).is_some_and(|c| c.key == *key),
            FlowState::Syn(i) => self.syns.entries.at(i).is_some_and(|e| e.key == *key),
            FlowState::TimeWait(i) => self.time_waits.entries.at(i).is_some_and(|t| t.key == *key),
        })
    }
}
