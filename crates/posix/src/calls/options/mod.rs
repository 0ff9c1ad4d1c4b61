//! setsockopt and getsockopt.

mod elsewhere;
mod memory;
mod programs;
mod sockopt;
mod stamping;
