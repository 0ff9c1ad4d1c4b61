//! The user behind a control connection, and what it is shown of other users' processes.

use super::Peer;

/// The user behind a control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// Root, or the user to whom the device belongs: sees and changes everything.
    Operator,
    /// Reads the network, the sockets and the counters, as every user does on Linux; which process
    /// has a socket it learns of its own processes.
    User { uid: u32 },
}

impl Viewer {
    /// Returns the user behind a connection to a process of the user `own`.
    #[must_use]
    pub fn of(peer: Peer, own: u32) -> Viewer {
        match peer.uid {
            0 => Viewer::Operator,
            uid if uid == own => Viewer::Operator,
            uid => Viewer::User { uid },
        }
    }

    #[must_use]
    pub fn is_operator(self) -> bool {
        self == Viewer::Operator
    }

    /// Returns whether the viewer is shown what a process of this user has.
    #[must_use]
    pub fn may_see(self, owner: u32) -> bool {
        match self {
            Viewer::Operator => true,
            Viewer::User { uid } => uid == owner,
        }
    }
}

/// The refusal to describe a process that the viewer may not see.
#[must_use]
pub fn of_another_user(pid: u32) -> String {
    format!("Operation not permitted: process {pid} belongs to another user")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_owner_see_all_others_their_own() {
        let of = |uid| Viewer::of(Peer { pid: 1, uid }, 1000);
        for (uid, is_operator, seen) in [
            (0, true, [true, true, true]),
            (1000, true, [true, true, true]),
            (33, false, [false, true, false]),
        ] {
            assert_eq!(of(uid).is_operator(), is_operator, "{uid}");
            assert_eq!(
                [0, 33, 1000].map(|owner| of(uid).may_see(owner)),
                seen,
                "{uid}"
            );
        }
    }
}
