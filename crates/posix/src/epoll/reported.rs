//! Members of which the kernel reports events, by the data that the program has given them.

use std::collections::HashMap;

use rustix::event::PollFlags;
use slipstack_mem::Descriptor;

use crate::epoll::set::{Inner, Item, ONE_SHOT, PRIVATE, Set, Target};
use crate::idhash::BuildIdHasher;
use crate::socket::kernel_socket::is_ready;

impl Set {
    /// The kernel reported `events` of a member with this data: its socket, if it is one that lives
    /// in both worlds, and whether it rests from now on (ONESHOT), in both.
    pub(crate) fn on_kernel_event(&self, data: u64, events: u32) -> Option<(Target, bool)> {
        let mut inner = self.inner.lock();
        let Inner { items, both, .. } = &mut *inner;
        let item = items.get_mut(&reported((items, both), data, events)?)?;
        let rests = item.events & ONE_SHOT != 0;
        if rests {
            item.fired = item.events;
            item.events &= PRIVATE;
        }
        Some((item.target.clone(), rests))
    }
}

/// Returns the item whose event the kernel has reported. If several have the same data, it is one
/// that asks for such an event and is ready, and if several are, a ONESHOT one, which is not
/// reported again.
fn reported(
    (items, both): (&HashMap<u64, Item, BuildIdHasher>, &[u64]),
    data: u64,
    events: u32,
) -> Option<u64> {
    let has_data = |id: &&u64| items.get(*id).is_some_and(|item| item.data == data);
    let mut found = both.iter().filter(has_data);
    let first = *found.next()?;
    if found.next().is_none() {
        return Some(first);
    }
    let ready = both.iter().filter(has_data).filter(|id| {
        let asked = |item: &&Item| item.events & !PRIVATE & events != 0;
        let item = items.get(*id).filter(asked);
        item.is_some_and(|item| {
            let asked = PollFlags::from_bits_retain(item.events as u16);
            is_ready(Descriptor::new(item.fd), asked)
        })
    });
    let is_one_shot = |id: &u64| {
        items
            .get(id)
            .is_some_and(|item| item.events & ONE_SHOT != 0)
    };
    let found = ready.copied().max_by_key(is_one_shot);
    Some(found.unwrap_or(first))
}
