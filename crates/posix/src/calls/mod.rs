//! The socket calls, grouped by what they do.

mod accept;
mod connect;
mod descriptors;
pub(crate) mod name;
pub(crate) mod receive;
mod receive_datagram;
mod requests;
mod send;
mod send_datagram;
mod send_pieces;
mod sendfile;
mod splice;

pub use splice::Splice;
