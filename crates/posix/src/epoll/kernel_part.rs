//! A member's entry in the kernel's epoll set: the kernel socket under its number, with the
//! program's own events and data.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll;
use slipstack_mem::Descriptor;

use crate::epoll::Set;
use crate::socket::description::Description;

/// The items of epoll sets that watch a socket.
pub(crate) fn sets_of(socket: &Description) -> Vec<(Arc<Set>, u64)> {
    socket.watches().iter().filter_map(Set::of).collect()
}

/// Makes the kernel socket under an item's number a member of the kernel's set, with the program's
/// own events and data.
pub(crate) fn add_kernel_part(set: &Set, item: u64) {
    let Some((fd, events, data)) = set.item(item) else {
        return;
    };
    let (Some(number), Some(epfd)) = (Descriptor::new(fd), set.number().and_then(Descriptor::new))
    else {
        return;
    };
    let flags = epoll::EventFlags::from_bits_retain(events);
    let data = epoll::EventData::new_u64(data);
    if epoll::add(epfd.as_fd(), number.as_fd(), data, flags).is_ok() {
        set.kernel_members.fetch_add(1, Ordering::Relaxed);
        set.set_kernel_part(item, true);
    }
}

/// Removes it: from now on only the stack reports events of the item.
pub(crate) fn remove_kernel_part(set: &Set, item: u64) {
    let Some((fd, ..)) = set.item(item) else {
        return;
    };
    if change_kernel_part(set, fd, |epfd, fd| epoll::delete(epfd.as_fd(), fd.as_fd())).is_ok() {
        set.kernel_member_left();
        set.set_kernel_part(item, false);
    }
}

/// Changes the entry of the kernel socket under number `fd` in the kernel's set that it is in: this
/// process's own, or the one that is shared with others.
pub(crate) fn change_kernel_part(
    set: &Set,
    fd: i32,
    change: impl Fn(Descriptor, Descriptor) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let fd = Descriptor::new(fd).ok_or(rustix::io::Errno::BADF)?;
    let epfd = set.number().and_then(Descriptor::new);
    let epfd = epfd.ok_or(rustix::io::Errno::BADF)?;
    match (change(epfd, fd), set.common()) {
        (Err(rustix::io::Errno::NOENT), Some(common)) => change(common, fd),
        (done, _) => done,
    }
}

/// Removes from epoll sets a kernel socket that served only to check options.
pub(crate) fn leave_kernels_sets(socket: &Description) {
    if socket.has_kernel() {
        for (set, item) in sets_of(socket) {
            remove_kernel_part(&set, item);
        }
    }
}
