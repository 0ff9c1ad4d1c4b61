//! setsockopt and getsockopt.

mod choosers;
mod elsewhere;
mod memory;
mod sockopt;
