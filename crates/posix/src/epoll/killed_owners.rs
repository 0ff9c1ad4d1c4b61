//! Members whose owner was killed: the kernel has reported an end that is not the connection's.

use std::sync::Arc;

use crate::epoll::set::{Inner, PRIVATE, Set, Target};
use crate::socket::description::{Decided, Description};

impl Set {
    /// Connections of other processes among the members that the kernel knows, with their items and
    /// the program's data for them.
    pub(crate) fn borrowed(&self) -> Vec<(u64, Arc<Description>, u64)> {
        let Inner { items, both, .. } = &*self.inner.lock();
        let members = both.iter().filter_map(|id| Some((*id, items.get(id)?)));
        let found = members.filter_map(|(id, item)| match &item.target {
            Target::Socket(socket) if matches!(socket.decided(), Some(Decided::Foreign(_))) => {
                Some((id, Arc::clone(socket), item.data))
            }
            _ => None,
        });
        found.collect()
    }

    /// An event that the kernel has reported of an item is not one of the connection: if it was
    /// ONESHOT, it waits again.
    pub(crate) fn fire_again(&self, item: u64) {
        if let Some(item) = self.inner.lock().items.get_mut(&item)
            && item.events & !PRIVATE == 0
            && item.fired != 0
        {
            item.events = std::mem::take(&mut item.fired);
        }
        self.look_at(item);
    }
}
