//! Named limits of a service.

/// Limits of a service on one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Further connections are reset, and counted ([`crate::Counts::refused`]).
    pub connections_max: usize,
    /// Jobs of one connection that are under way.
    pub jobs_per_connection: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: slipstack_channel::SOCKETS / 2,
            jobs_per_connection: 1,
        }
    }
}
