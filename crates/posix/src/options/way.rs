//! Options that choose the way of packets, as they are recorded: a mark (SO_MARK), a routing table
//! (FreeBSD's SO_SETFIB), an interface of the stack.

use slipstack_channel::SocketOption;

/// FreeBSD's sys/socket.h; Linux has no option of this number.
pub const SO_SETFIB: i32 = 0x1014;
/// How the interface of the stack is recorded, beside the number that the kernel's part is bound
/// to.
pub(super) const STACKS_LINK: i32 = i32::MIN;

/// F-Stack's FIB 0 is the main table; the others are the tables of their numbers, up to those that
/// every stack has.
const MAIN_TABLE: u16 = 254;
pub(super) const FIBS: i32 = 253;

/// Returns the stack's counterpart of one of these options with its value; `None` if it is none of
/// them.
pub(super) fn for_stack(name: i32, value: Option<i32>) -> Option<SocketOption> {
    Some(match name {
        libc::SO_MARK => SocketOption::Mark(value?.cast_unsigned()),
        SO_SETFIB => SocketOption::Table(match value? {
            0 => MAIN_TABLE,
            fib => u16::try_from(fib).ok()?,
        }),
        STACKS_LINK => SocketOption::Link(u16::try_from(value?).ok()?),
        _ => return None,
    })
}
