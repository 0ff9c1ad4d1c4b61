//! Files over HTTP/1.1 and 1.0 (RFC 9110, RFC 9112).
//!
//! Cached files are answered in the turn in which the request arrives. All file access runs on
//! workers; a request that waits for one stays in the receive ring and is parsed again when the
//! result is there.

mod cache;
mod exchange;
mod files;
mod handshake;
mod listing;
mod log;
mod memo;
mod repeated;
pub(crate) mod request;
mod response;
mod server;
pub(crate) mod status;

pub use files::Root;
pub use log::Log;
pub use request::{Parsed, Request, parse};
pub use server::{Http, HttpOptions};
pub use status::Status;
