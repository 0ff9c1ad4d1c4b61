//! An authoritative name server (RFC 1034, RFC 1035), run to completion.

mod answer;
mod message;
mod name;
mod server;
mod zone;

pub use server::{Dns, DnsOptions};
pub use zone::{LoadError, Zones};
