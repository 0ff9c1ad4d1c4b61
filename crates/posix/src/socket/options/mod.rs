//! Socket options: the values that were set, and which of them go to the stack.
//!
//! Values that Linux changes or checks (doubled buffers, ranges) are not modelled: a temporary
//! kernel socket takes the recorded options and answers. Options about the connection itself
//! (SO_ERROR, TCP_INFO, …) are answered here.

mod applying;
pub(crate) mod attaching;
mod learning;
pub(crate) mod limit;
pub(crate) mod meaning;
pub(crate) mod multicast;
mod of_stream;
pub(crate) mod record;
mod repeating;
pub(crate) mod structures;
pub(crate) mod tcp_info;
pub(crate) mod timeouts;
pub(crate) mod way;

pub(crate) use applying::{
    apply_dgram_options, apply_stream_options, set_on_stream, set_recorded_options,
};
pub(crate) use attaching::{attach_filter, filter_in};
pub(crate) use learning::{is_untold, options_of};
pub(crate) use multicast::{Membership, all_changes};
pub(crate) use record::{Options, Set};
pub(crate) use repeating::{push_chooser, push_options, replay};
pub use way::SO_SETFIB;
pub(crate) use way::class;
