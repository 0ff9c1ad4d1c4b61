//! The stack's addresses in lists of interfaces: the kernel has the interface, but not these.

mod listing;
mod own;
mod question;
mod routes;

pub use own::OwnAddress;
pub(crate) use question::RouteSocket;
