//! The state bits of a socket's cell.

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// A set of facts about a socket.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct State(pub(crate) u16);

impl State {
    pub const NONE: State = State(0);
    /// The handshake is done; stays set until the socket is closed.
    pub const CONNECTED: State = State(1);
    pub const CONNECTING: State = State(1 << 1);
    pub const LISTENING: State = State(1 << 2);
    pub const BOUND: State = State(1 << 3);
    /// After the bytes in the ring comes the end.
    pub const RDHUP: State = State(1 << 4);
    /// Both directions are over.
    pub const HUP: State = State(1 << 5);
    /// An error waits to be taken.
    pub const ERR: State = State(1 << 6);
    /// The connection no longer exists in the stack.
    pub const CLOSED: State = State(1 << 7);
    /// The program has shut its direction down, and the engine has seen it.
    pub const SHUT: State = State(1 << 8);
    /// The peer has said FIN, whatever came after it.
    pub const FIN: State = State(1 << 9);

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
        const NAMES: [&str; 9] = [
            "CONNECTED",
            "CONNECTING",
            "LISTENING",
            "BOUND",
            "RDHUP",
            "HUP",
            "ERR",
            "CLOSED",
            "SHUT",
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

macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $code,)* }

        impl $name {
            pub const fn code(self) -> u8 {
                self as u8
            }

            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use coded;

coded! {
    /// Why a connection (attempt) failed or a datagram was returned.
    Reason {
        /// RST in answer to our SYN, or ICMP port unreachable.
        Refused = 1,
        /// RST on an open connection.
        Reset = 2,
        TimedOut = 3,
        HostUnreachable = 4,
        NetUnreachable = 5,
        /// Ended by ourselves.
        Aborted = 6,
        ProtocolError = 7,
        MessageTooLong = 8,
        /// RST after we had shut down or both sides had said FIN.
        BrokenPipe = 9,
        /// The engine is gone.
        NetDown = 10,
        ProtocolUnreachable = 11,
        HostDown = 12,
        NotOnNet = 13,
        /// The way that the packet asks for does not exist.
        RouteFailed = 14,
        /// Somebody on the way forbids it.
        Prohibited = 15,
    }
}

/// State, error and generation in one word, so that one load tells all three.
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
