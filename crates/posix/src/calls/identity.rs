//! Which file a number stands for: its inode, and whether two numbers stand for the same one.

use std::cmp::Ordering;
use std::os::fd::OwnedFd;

use slipstack_mem::Descriptor;

use crate::epoll::{Set, Target};
use crate::lending::abstract_name;
use crate::process::Process;
use crate::process::table::Entry;

impl Process {
    /// Returns the inode of a socket for `fstat`.
    #[must_use]
    pub fn inode(&self, fd: i32) -> Option<u64> {
        match self.table.find(fd)? {
            Entry::Socket(socket) => Some(self.ids.inode_of(&socket)),
            Entry::Set(_) | Entry::Routes(_) => None,
        }
    }

    /// KCMP_FILE for two numbers of this process. `kernel` is the order of the kernel's files,
    /// which many sockets may share.
    #[must_use]
    pub fn compare_files(&self, first: i32, second: i32, kernel: Ordering) -> Ordering {
        match (self.table.find(first), self.table.find(second)) {
            (Some(first), Some(second)) if first.order() == second.order() => Ordering::Equal,
            (first, second) => {
                kernel.then_with(|| self.ids.rank(first).cmp(&self.ids.rank(second)))
            }
        }
    }

    /// KCMP_FILE for `own` and the number `other` of another process, of whose file `copy` is a
    /// descriptor, if there is one. Its table is not seen: where both numbers carry the file of
    /// many sockets it is taken for that of the fork.
    #[must_use]
    pub fn compare_with_another(
        &self,
        own: i32,
        (other, copy): (i32, Option<OwnedFd>),
        kernel: Ordering,
    ) -> Ordering {
        let Some(Entry::Socket(socket)) = self.table.find(own) else {
            return kernel;
        };
        let end = copy.map(Descriptor::give);
        let inode = end.and_then(|end| {
            let names = abstract_name::read(end);
            end.close();
            Some(names?.0.inode)
        });
        match inode {
            Some(inode) if inode == self.ids.inode_of(&socket) => Ordering::Equal,
            None if !socket.has_kernel() => self.compare_files(own, other, kernel),
            _ => kernel,
        }
    }

    /// KCMP_EPOLL_TFD: the order of `fd` and the member `number` of the set `set`, the one after
    /// `offset` others of that number. `Err`: the kernel knows, for that offset.
    pub fn compare_with_member(
        &self,
        fd: i32,
        (set, number, offset): (i32, i32, u32),
    ) -> Result<Ordering, u32> {
        let members = self
            .table
            .set(set)
            .map_or(Vec::new(), |set| members(&set, number));
        let Some(target) = members.get(offset as usize) else {
            return Err(offset - members.len() as u32);
        };
        let entry = match target {
            Target::Socket(socket) => Entry::Socket(socket.clone()),
            Target::Set(set) => Entry::Set(set.clone()),
        };
        let own = self.table.find(fd);
        Ok(self.ids.rank(own).cmp(&self.ids.rank(Some(entry))))
    }
}

/// Members of a set with that number, which several have if it was closed and is used again, in the
/// order in which they came.
fn members(set: &Set, number: i32) -> Vec<Target> {
    let inner = set.inner.lock();
    let items = inner.items.iter().filter(|(_, item)| item.fd == number);
    let mut found: Vec<_> = items.map(|(at, item)| (*at, item.target.clone())).collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, target)| target).collect()
}
