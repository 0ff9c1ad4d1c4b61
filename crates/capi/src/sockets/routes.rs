//! `ff_route_ctl`: the stack's routes are those that it was started with.

use slipstack_posix::Errno;

/// `enum FF_ROUTE_CTL` ends here.
const CHANGE: i32 = 2;

/// Why a route cannot be added, removed or changed.
pub fn refuse(operation: i32, has_destination: bool) -> Errno {
    match operation {
        0..=CHANGE if has_destination => Errno::EOPNOTSUPP,
        _ => Errno::EINVAL,
    }
}
