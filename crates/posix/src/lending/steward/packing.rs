//! The end of a steward's thread: its children and pumps are passed to its successor.

use crate::lending::child::{Child, Packed};
use crate::lending::giving::come_back;
use crate::lending::steward::Steward;

impl Steward {
    /// Packs children and pumps for the steward's successor.
    pub(super) fn pack(mut self) {
        self.refuse_wanted();
        for child in self.children.values_mut() {
            let given = std::mem::take(&mut child.given);
            given
                .iter()
                .for_each(|it| come_back(&mut self.pumps, &mut self.ready, it));
        }
        let children: Vec<(u64, Child)> = self.children.drain().collect();
        for (_, child) in &children {
            self.rest.unwatch(&child.control);
        }
        let keys: Vec<u64> = self.pumps.keys().copied().collect();
        let pumps = keys
            .into_iter()
            .filter_map(|key| Some((key, self.take_out(key)?)));
        let pumps = pumps.collect();
        self.rest.stop_leading(self.lender);
        self.rest.end(self.lender);
        self.post.keep(Packed { children, pumps });
    }

    /// Goes on with what another steward has left, whose descriptors are noted already.
    pub(crate) fn take_up(&mut self, packed: Packed) {
        let Packed { children, pumps } = packed;
        for (key, mut pump) in pumps {
            self.post.skip_key(key);
            pump.look_again();
            self.add_as(key, pump);
        }
        for (key, child) in children {
            self.post.skip_key(key);
            self.add_child(key, child);
        }
    }
}
