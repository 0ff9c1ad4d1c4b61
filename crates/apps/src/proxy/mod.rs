//! A proxy: connections passed on to backends, byte by byte or request by request.
//!
//! Both connections of a pair belong to one engine, so that bytes go from the receive ring of one
//! into the send ring of the other within a turn. As bytes ([`Protocol::Tcp`]) half-closes and
//! resets are passed on. As HTTP/1.1 (RFC 9112) a connection to a backend serves many clients, one
//! request after the other. Clients may come by TLS, of either kind.

mod backends;
mod body;
mod exchange;
pub mod framing;
mod server;
mod shaking;
mod stream;

pub use backends::Balance;
pub use server::{Figures, Protocol, Proxy, ProxyOptions};
