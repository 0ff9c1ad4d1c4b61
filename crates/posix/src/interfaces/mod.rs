//! The stack's addresses in lists of interfaces: the kernel knows the interface, but not these.

mod own;
pub(crate) mod question;
pub(crate) mod route_question;

pub use own::OwnAddress;
pub(crate) use question::RouteSocket;
