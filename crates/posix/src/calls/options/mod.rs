//! setsockopt and getsockopt.

mod elsewhere;
mod memory;
mod sockopt;
mod stamping;
