//! The decision whether a SYN gets an entry, a cookie or nothing.

use crate::config::SynCookies;

/// The room that a SYN is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Entry,
    Cookie,
    None,
}

/// Entry, cookie or nothing, by the option and by how full the tables are.
///
/// `is_reopened`: the flow comes out of TIME-WAIT with an initial number beyond the old
/// connection's, which a cookie cannot have: such a SYN takes an entry as long as there are any (as
/// on Linux).
pub fn room_for(
    policy: SynCookies,
    is_share_full: bool,
    is_table_full: bool,
    is_reopened: bool,
) -> Room {
    match policy {
        SynCookies::Never if is_share_full || is_table_full => Room::None,
        SynCookies::Never => Room::Entry,
        _ if is_table_full => Room::Cookie,
        _ if is_reopened => Room::Entry,
        SynCookies::WhenFull if !is_share_full => Room::Entry,
        SynCookies::WhenFull | SynCookies::Always => Room::Cookie,
    }
}
