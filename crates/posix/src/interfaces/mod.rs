//! What lists of interfaces tell of the stack's addresses: the kernel has the interface, but not these.

mod listing;
mod own;
mod question;
mod routes;

pub use own::OwnAddress;
pub(crate) use question::RouteSocket;
