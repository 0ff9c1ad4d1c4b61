//! Sockets: making, naming, connecting, options.

pub mod abi;
mod options;
mod routes;
