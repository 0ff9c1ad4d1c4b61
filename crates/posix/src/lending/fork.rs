//! The sockets that a child may use, and their state in the child after the fork.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use crate::socket::borrowed::Names;
use crate::socket::borrowed::child_message::{Message, MessageKind, control_pair};
use crate::socket::borrowed::control::Control;
use crate::socket::description::Description;

/// The child's end of a control socket to another process's steward.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) of: Arc<Control>,
    pub(crate) childs: OwnedFd,
}

/// A child in preparation.
#[derive(Debug, Default)]
pub(crate) struct Fork {
    /// Our steward's end and the child's; `None`: there is nothing of ours that it could use.
    pub(crate) control: Option<(OwnedFd, OwnedFd)>,
    /// In the order of their ids, and so are their names.
    pub(crate) shared: Vec<Arc<Description>>,
    pub(crate) names: Vec<Names>,
    /// Sockets that another thread has closed since they were counted as lent.
    pub(crate) closed: Vec<Arc<Description>>,
    /// Control sockets to the stewards of other processes, for sockets that this process has
    /// borrowed.
    pub(crate) branches: Vec<Branch>,
}

/// The inheritance of a forked child.
#[derive(Debug, Default)]
pub(crate) struct Inheritance {
    pub(crate) names: Vec<Names>,
    pub(crate) control: Option<Arc<Control>>,
    pub(crate) branches: Vec<(i32, Arc<Control>)>,
}

impl Inheritance {
    /// The names of a connection of the parent's, and the way to it.
    pub(crate) fn of_parent(&self, id: u64) -> (Option<&Names>, Option<Arc<Control>>) {
        let found = self.names.binary_search_by_key(&id, |names| names.id);
        let names = found.ok().map(|at| &self.names[at]);
        // A child cannot request a socket that is not lent.
        let control = names.and(self.control.clone());
        (names, control)
    }

    /// The way to a connection that the parent has borrowed itself.
    pub(crate) fn instead_of(&self, control: Option<&Arc<Control>>) -> Option<Arc<Control>> {
        let number = control?.number();
        let found = self.branches.iter().find(|(of, _)| *of == number);
        found.map(|(_, control)| Arc::clone(control))
    }
}

impl Fork {
    /// All descriptors of it.
    pub(crate) fn ends(&self) -> impl Iterator<Item = i32> {
        let own = self
            .control
            .iter()
            .flat_map(|(control, childs)| [control, childs]);
        let branches = self.branches.iter().map(|it| &it.childs);
        own.chain(branches).map(AsRawFd::as_raw_fd)
    }

    /// A way for the child to the steward at the other end of `control`, if there is not one yet.
    pub(crate) fn branch_off(&mut self, control: &Arc<Control>) {
        if self.branches.iter().any(|it| Arc::ptr_eq(&it.of, control)) {
            return;
        }
        let message = Message {
            kind: MessageKind::Branch,
            id: 0,
            token: 0,
            amount: 0,
        };
        let Ok((stewards, childs)) = control_pair() else {
            // The child has the pairs all the same.
            let _ = control.say(message, None);
            return;
        };
        // If the owner was killed, the child sees it by its end.
        let _ = control.say(message, Some(stewards.as_fd()));
        let of = Arc::clone(control);
        self.branches.push(Branch { of, childs });
    }
}
