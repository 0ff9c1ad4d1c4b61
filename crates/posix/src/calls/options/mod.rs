//! setsockopt and getsockopt.

mod choosers;
mod choosing;
mod filters;
mod groups;
mod memory;
mod sockopt;
