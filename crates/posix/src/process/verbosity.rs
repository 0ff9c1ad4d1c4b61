//! Levels of the log.

use slipstack_channel::report::{Place, Row};

/// One line about a socket that has been placed.
pub(crate) fn placement(fd: i32, row: &Row) -> String {
    let kind = if row.is_udp { "udp" } else { "tcp" };
    let place = match row.place {
        Place::Undecided => "nowhere",
        Place::Stack => "on the stack",
        Place::Kernel => "on the kernel",
        Place::Both => "on the stack and the kernel",
    };
    let end = |addr: Option<std::net::SocketAddr>| addr.map_or("-".to_owned(), |it| it.to_string());
    format!(
        "descriptor {fd}: {kind} {} {} is {place}: {}",
        end(row.local),
        end(row.remote),
        row.why.sentence()
    )
}
