//! TCP Fast Open (RFC 7413): data in SYNs.
//!
//! A client that has a server's cookie (`cache.rs`) holds its SYN back until there is something to
//! send (`client.rs`). A server (`server.rs`) derives cookies from the client's address (`keys.rs`)
//! and delivers the data of a SYN with a valid cookie to the program before the handshake is
//! complete.

pub mod attempt;
mod cache;
pub mod client;
mod keys;
mod offer;
mod pending;
mod server;

pub use attempt::Attempt;
pub use cache::ServerCache;
pub use keys::{CookieKeys, OwnCookie};
pub use offer::{Offer, Terms};
pub use pending::FastOpens;
