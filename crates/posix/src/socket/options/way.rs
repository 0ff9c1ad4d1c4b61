//! Options that choose a packet's route, as recorded: a mark (SO_MARK), a routing table (FreeBSD's
//! SO_SETFIB), an interface of the stack.

use slipstack_channel::{MulticastOption, SocketOption};

/// FreeBSD's sys/socket.h; Linux has no option of this number.
pub const SO_SETFIB: i32 = 0x1014;
/// Record of the interface of the stack, beside the number that the kernel's part is bound
/// to.
pub(crate) const STACKS_LINK: i32 = i32::MIN;
/// Record that another program has been sent the socket.
pub(crate) const LEAVES_UNREAD: i32 = i32::MIN + 5;
/// Record of the stack's outgoing interface for datagrams: by family and kind of destination.
const LEAVING: [(i32, i32, i32); 4] = [
    (libc::IPPROTO_IP, libc::IP_UNICAST_IF, i32::MIN + 1),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_IF, i32::MIN + 2),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_IF, i32::MIN + 3),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, i32::MIN + 4),
];

/// Stands for the classes that no map of priorities has.
const NO_CLASS: u8 = 8;
/// F-Stack's FIB 0 is the main table; the others are the tables of their numbers, up to those that
/// every stack has.
const MAIN_TABLE: u16 = 254;
pub(crate) const FIBS: i32 = 253;

/// The name under which the interface is recorded that an option names; `None`: it names none.
pub(crate) fn leaving(level: i32, name: i32) -> Option<i32> {
    let mut all = LEAVING.iter();
    let found = all.find(|(of, option, _)| (*of, *option) == (level, name));
    found.map(|(.., recorded)| *recorded)
}

/// Whether an interface of the stack is recorded under this name.
pub(crate) fn is_leaving(recorded: i32) -> bool {
    LEAVING.iter().any(|(.., it)| *it == recorded)
}

/// Returns the stack's option for a recorded one.
fn leaving_option(recorded: i32, value: i32) -> Option<SocketOption> {
    let mut all = LEAVING.iter();
    let (level, name, _) = all.find(|(.., it)| *it == recorded)?;
    let option = MulticastOption::Leaves {
        is_v6: *level == libc::IPPROTO_IPV6,
        is_to_group: matches!(*name, libc::IP_MULTICAST_IF | libc::IPV6_MULTICAST_IF),
        link: u16::try_from(value - 1).ok(),
    };
    Some(SocketOption::Multicast(option))
}

/// Returns the class of a priority plus one.
pub(crate) fn class(priority: i32) -> u8 {
    match u8::try_from(priority) {
        Ok(class) if class < NO_CLASS => class + 1,
        _ => NO_CLASS + 1,
    }
}

/// Returns the stack's counterpart of one of these options with its value; `None` if it is none of
/// them.
pub(crate) fn for_stack(name: i32, value: Option<i32>) -> Option<SocketOption> {
    Some(match name {
        libc::SO_PRIORITY => SocketOption::Priority(class(value?)),
        libc::SO_MARK => SocketOption::Mark(value?.cast_unsigned()),
        SO_SETFIB => SocketOption::Table(match value? {
            0 => MAIN_TABLE,
            fib => u16::try_from(fib).ok()?,
        }),
        LEAVES_UNREAD => SocketOption::LeavesUnread(value? != 0),
        STACKS_LINK => SocketOption::Link(u16::try_from(value?).ok()?),
        other => return leaving_option(other, value?),
    })
}
