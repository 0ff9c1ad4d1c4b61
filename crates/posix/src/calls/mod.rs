//! The calls of programs, grouped by purpose.

mod accept;
mod alone;
mod carved;
mod connect;
mod descriptors;
mod epoll;
mod fork;
mod identity;
mod idle;
mod in_place;
mod interfaces;
mod kernel_sockets;
mod kqueue;
mod many;
pub(crate) mod name;
pub(crate) mod options;
mod poll;
pub(crate) mod receive;
mod receive_datagram;
mod requests;
mod send;
mod send_datagram;
mod send_pieces;
mod sendfile;
mod shared_ports;
mod socket;
mod splice;

pub use carved::{CARVED_MAX, Carved};
pub use in_place::Kept;
pub use many::{Give, Take};
pub use splice::Splice;
