//! The state bits of a socket's cell.

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

use slipstack_terms::Reason;

/// A set of facts about a socket.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct State(pub(crate) u16);

impl State {
    pub const NONE: State = State(0);
    /// The handshake is done, or its SYN takes data (then with `OPENING`); stays set until the
    /// socket is closed.
    pub const CONNECTED: State = State(1);
    pub const CONNECTING: State = State(1 << 1);
    pub const LISTENING: State = State(1 << 2);
    pub const BOUND: State = State(1 << 3);
    /// After the bytes in the ring comes the end.
    pub const RDHUP: State = State(1 << 4);
    /// The streams of both directions have ended.
    pub const HUP: State = State(1 << 5);
    /// An error waits to be taken.
    pub const ERR: State = State(1 << 6);
    /// The connection no longer exists in the stack.
    pub const CLOSED: State = State(1 << 7);
    /// The program has shut its direction down, and the engine has seen it.
    pub const SHUT: State = State(1 << 8);
    /// The peer has sent FIN, whatever came after it.
    pub const FIN: State = State(1 << 9);
    /// The connection takes the data of its SYN; the SYN-ACK has not come.
    pub const OPENING: State = State(1 << 10);
    /// Datagrams go to other processes that have the socket, until [`crate::Command::Resume`].
    pub const YIELDS: State = State(1 << 11);

    #[inline]
    pub const fn contains(self, other: State) -> bool {
        self.0 & other.0 == other.0
    }

    #[inline]
    pub const fn intersects(self, other: State) -> bool {
        self.0 & other.0 != 0
    }

    #[inline]
    #[must_use]
    pub const fn without(self, other: State) -> State {
        State(self.0 & !other.0)
    }
}

impl BitOr for State {
    type Output = State;
    fn bitor(self, other: State) -> State {
        State(self.0 | other.0)
    }
}

impl BitOrAssign for State {
    fn bitor_assign(&mut self, other: State) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 12] = [
            "CONNECTED",
            "CONNECTING",
            "LISTENING",
            "BOUND",
            "RDHUP",
            "HUP",
            "ERR",
            "CLOSED",
            "SHUT",
            "FIN",
            "OPENING",
            "YIELDS",
        ];
        let mut set = f.debug_set();
        for (bit, name) in NAMES.iter().enumerate() {
            if self.0 >> bit & 1 == 1 {
                set.entry(&format_args!("{name}"));
            }
        }
        set.finish()
    }
}

/// State, error and generation in one word, so that one load reads all three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateWord {
    pub(crate) generation: u32,
    pub(crate) state: State,
    pub(crate) reason: Option<Reason>,
    /// Counts errors, so that a second one of the same kind is seen again.
    pub(crate) error_count: u8,
}

impl StateWord {
    #[inline]
    pub(crate) fn encode(self) -> u64 {
        u64::from(self.generation) << 32
            | u64::from(self.error_count) << 24
            | u64::from(self.reason.map_or(0, Reason::code)) << 16
            | u64::from(self.state.0)
    }

    #[inline]
    pub(crate) fn decode(word: u64) -> StateWord {
        StateWord {
            generation: (word >> 32) as u32,
            state: State(word as u16),
            reason: Reason::from_code((word >> 16) as u8),
            error_count: (word >> 24) as u8,
        }
    }
}
