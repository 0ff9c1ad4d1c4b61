//! State of a socket as its cell in the channel shows it.

use slipstack_channel::State;

/// The state bits of a socket's cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen(pub(crate) State);

impl Seen {
    pub(crate) fn is_connected(self) -> bool {
        self.0.contains(State::CONNECTED)
    }

    /// Whether the connection takes the data of its SYN, and is not made yet.
    pub(crate) fn is_opening(self) -> bool {
        self.0.contains(State::OPENING)
    }

    /// Whether it is connected, and its handshake is done.
    #[inline]
    pub(crate) fn is_established(self) -> bool {
        self.is_connected() && !self.is_opening()
    }

    /// The peer's FIN has come, perhaps before an error: SOCK_DONE.
    pub(crate) fn is_done(self) -> bool {
        self.0.contains(State::FIN)
    }

    /// Returns whether the peer has closed its direction.
    pub(crate) fn is_fin(self) -> bool {
        self.0.contains(State::RDHUP)
    }

    /// Returns whether both directions are closed.
    pub(crate) fn is_hup(self) -> bool {
        self.0.contains(State::HUP)
    }

    /// Whether its datagrams go to other processes until it waits.
    pub(crate) fn is_yielding(self) -> bool {
        self.0.contains(State::YIELDS)
    }

    pub(crate) fn is_error(self) -> bool {
        self.0.contains(State::ERR)
    }

    pub(crate) fn is_closed(self) -> bool {
        self.0.contains(State::CLOSED)
    }

    /// Whether it has ended, in order or not.
    pub(crate) fn is_over(self) -> bool {
        self.is_error() || self.is_hup() || self.is_closed()
    }

    /// Adds the error that the channel could not report: the engine died.
    pub(crate) fn with_error(self) -> Seen {
        Seen(self.0 | State::ERR)
    }

    /// Whether it is connected, without more.
    pub(crate) fn only_connected(self) -> Seen {
        match self.is_established() {
            true => Seen(State::CONNECTED),
            false => Seen(State::NONE),
        }
    }

    /// The inverse of [`Seen::bits`].
    pub(crate) fn of_bits(bits: u64) -> Seen {
        let facts = [
            State::CONNECTED,
            State::RDHUP,
            State::HUP,
            State::ERR,
            State::CLOSED,
            State::OPENING,
        ];
        let set = facts
            .into_iter()
            .enumerate()
            .filter(|(at, _)| bits >> at & 1 == 1);
        Seen(set.fold(State::NONE, |all, (_, fact)| all | fact))
    }

    /// The state that watchers are notified of, as a number to compare.
    pub(crate) fn bits(self) -> u32 {
        u32::from(self.is_established())
            | u32::from(self.is_fin()) << 1
            | u32::from(self.is_hup()) << 2
            | u32::from(self.is_error()) << 3
            | u32::from(self.is_closed()) << 4
            | u32::from(self.is_opening()) << 5
    }
}
