//! An authoritative name server (RFC 1034, RFC 1035), run to completion.

mod answer;
mod builder;
mod chaos;
mod denial;
mod edns;
mod hash;
mod message;
mod name;
mod ready;
mod responder;
mod server;
mod store;
mod types;
mod zone;

pub use answer::{Kind, Rendered};
pub use chaos::Chaos;
pub use edns::Identity;
pub use message::{Edns, Parsed, Query, parse};
pub use ready::{Hit, Key, Ready};
pub use responder::Responder;
pub use server::{Dns, DnsOptions};
pub use store::Store;
pub use zone::{LoadError, Zone, Zones, load, parse_name, soa_numbers};
