//! The end of a program's use of a connection.

/// Manner in which a program closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
    /// Written data is delivered, then FIN.
    Orderly,
    /// Ends at once (SO_LINGER with zero time): by a RST, unless both sides have closed and the
    /// FIN has left.
    Abort,
    /// A connection that the program never took: another listener of the same address may have
    /// it; without one it is reset.
    Pass,
}
