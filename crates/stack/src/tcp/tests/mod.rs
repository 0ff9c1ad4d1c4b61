//! One stack driven by hand-built segments; each file is a topic.

mod acks;
mod audit;
mod backlog;
mod close;
mod congestion;
mod cookies;
mod ecn;
mod fast_open;
mod figures;
mod frto;
mod handshake;
pub(super) mod harness;
mod hostile;
mod keepalive;
mod moving;
mod mtu_search;
mod paws;
mod reset;
mod reuse;
mod rivals;
mod rto;
mod sack;
mod states;
mod tail_probe;
mod train;
mod user_timeout;
mod window;
