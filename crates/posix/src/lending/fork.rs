//! The sockets that a child which is about to be made may use, and what it has of them afterwards.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::names::Names;
use super::words::{Control, Message, Word, control_pair};
use crate::description::Description;

/// The end for the child, of the control socket to somebody's steward.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) of: Arc<Control>,
    pub(super) childs: OwnedFd,
}

/// A child in preparation.
#[derive(Debug, Default)]
pub(super) struct Fork {
    /// Our steward's end and the child's; `None`: there is nothing of ours that it could use.
    pub(super) control: Option<(OwnedFd, OwnedFd)>,
    pub(super) shared: Vec<Arc<Description>>,
    pub(super) names: Vec<Names>,
    /// To the stewards of others, of what this process has borrowed.
    pub(super) branches: Vec<Branch>,
}

/// The inheritance of a forked child.
#[derive(Debug, Default)]
pub(crate) struct Inheritance {
    pub(super) names: Vec<Names>,
    pub(super) control: Option<Arc<Control>>,
    pub(super) branches: Vec<(i32, Arc<Control>)>,
}

impl Inheritance {
    /// The names of a connection of the parent's, and the way to it.
    pub(crate) fn of_parent(&self, id: u64) -> (Option<&Names>, Option<Arc<Control>>) {
        let names = self.names.iter().find(|names| names.id == id);
        // A child cannot ask for a socket that is not lent.
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
    /// A way for the child to the steward at the other end of `control`, if there is not one yet.
    pub(super) fn branch_off(&mut self, control: &Arc<Control>) {
        if self.branches.iter().any(|it| Arc::ptr_eq(&it.of, control)) {
            return;
        }
        let Ok((stewards, childs)) = control_pair() else {
            return;
        };
        let message = Message {
            word: Word::Branch,
            id: 0,
            token: 0,
            amount: 0,
        };
        if control.say(message, Some(stewards.as_fd())).is_ok() {
            let of = Arc::clone(control);
            self.branches.push(Branch { of, childs });
        }
    }
}
