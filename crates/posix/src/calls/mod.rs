//! The socket calls, grouped by what they do.

mod accept;
mod connect;
mod descriptors;
pub(crate) mod name;
mod receive;
mod requests;
mod send;
mod sendfile;
