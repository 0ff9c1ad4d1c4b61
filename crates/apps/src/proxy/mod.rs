//! A proxy: connections forwarded to backends, byte by byte or request by request.
//!
//! The two connections of a pair belong to one engine, so that bytes go from the receive ring of
//! one into the send ring of the other within a turn. In byte mode ([`Protocol::Tcp`]) half-closes
//! and resets are forwarded. In HTTP/1.1 mode (RFC 9112) a connection to a backend serves many
//! clients, one request after the other. Clients may use TLS in both modes.

mod backends;
mod body;
mod exchange;
pub mod framing;
mod handshake;
mod server;
mod stream;

pub use backends::Balance;
pub use server::{Figures, Protocol, Proxy, ProxyOptions};
