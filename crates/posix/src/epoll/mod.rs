//! Epoll sets that mix sockets of the stack with any kernel descriptor.
//!
//! The set's number is a real epoll descriptor and holds the kernel's members with the program's
//! own events and data. Members on the stack are in a ready list of ours that works like the
//! kernel's: an item is queued when its socket has an event, and examined when the program waits;
//! level-triggered items go back to the end while they stay ready.

mod home;
mod kernel_part;
mod killed_owners;
mod popping;
mod reported;
mod room;
mod set;
mod shared;
mod watching;

pub(crate) use home::{FIRST, UNSETTLED};
pub(crate) use kernel_part::{
    add_kernel_part, change_kernel_part, leave_kernels_sets, remove_kernel_part, sets_of,
};
pub(crate) use set::{COMMON_DATA, Set, Target};
pub(crate) use shared::{end_sharing, part_from_parent};
