//! TCP Fast Open (RFC 7413): data in SYNs.
//!
//! A client that has a server's cookie (`cache.rs`) holds its SYN back until there is something to
//! send (`client.rs`). A server (`server.rs`) makes cookies from the client's address (`keys.rs`)
//! and gives the data of a SYN that brings one to the program before the handshake is done.

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
pub use offer::Offer;
pub use pending::FastOpens;
