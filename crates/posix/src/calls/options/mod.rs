//! setsockopt and getsockopt.

mod choosers;
mod choosing;
mod elsewhere;
mod filters;
mod groups;
mod memory;
mod sockopt;
