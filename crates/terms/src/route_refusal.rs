//! Routes that refuse their packets.

use serde::{Deserialize, Serialize};

/// The way in which a route refuses, as Linux has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RouteRefusal {
    /// EHOSTUNREACH; senders of forwarded packets get an ICMP error.
    Unreachable,
    /// EACCES, and an ICMP error that says so.
    Prohibit,
    /// EINVAL; forwarded packets vanish.
    Blackhole,
}

impl RouteRefusal {
    pub const ALL: [RouteRefusal; 3] = [Self::Unreachable, Self::Prohibit, Self::Blackhole];

    /// The word of `ip route`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
            Self::Blackhole => "blackhole",
        }
    }

    /// Returns the refusal that the word names.
    pub fn find(word: &str) -> Option<RouteRefusal> {
        Self::ALL.into_iter().find(|it| it.name() == word)
    }
}
