//! Socket options: what was set, and what of it the stack is told.
//!
//! Values that Linux changes or checks (doubled buffers, ranges) are not modelled: a kernel socket
//! made for the moment takes the recorded options and answers. What the stack knows better
//! (SO_ERROR, TCP_INFO, …) is answered here.

mod attaching;
mod calls;
mod choosers;
mod choosing;
mod filters;
mod groups;
mod limit;
mod meaning;
mod memory;
mod multicast;
mod record;
mod refusals;
mod structures;
mod tcp_info;
mod timeouts;
mod way;

pub(crate) use attaching::{attach_filter, filter_in};
pub(crate) use calls::replay;
pub(crate) use choosers::push_chooser;
pub(crate) use multicast::{Membership, all_changes};
pub(crate) use record::Options;
pub use way::SO_SETFIB;
