//! A connection's local and remote address and its state, as its borrower is told them.

use std::net::SocketAddr;

/// A connection's names at the time of the fork.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub(crate) id: u64,
    pub(crate) inode: u64,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    /// The sending direction has been shut down.
    pub(crate) is_shut: bool,
}

impl Names {
    /// Returns the names as text, without the number.
    pub(crate) fn text(&self) -> String {
        let shown = |addr: Option<SocketAddr>| addr.map_or("-".to_owned(), |addr| addr.to_string());
        let (local, remote) = (shown(self.local), shown(self.remote));
        let end = if self.is_shut { "/s" } else { "" };
        format!("{}/{local}/{remote}{end}", self.inode)
    }

    pub(crate) fn parse(id: u64, text: &str) -> Option<Names> {
        let mut parts = text.split('/');
        let mut part = || parts.next();
        Some(Names {
            id,
            inode: part()?.parse().ok()?,
            local: part()?.parse().ok(),
            remote: part()?.parse().ok(),
            is_shut: part() == Some("s"),
        })
    }
}
