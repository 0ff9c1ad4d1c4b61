//! Bytes forwarded from one connection to the other: from ring to ring, or through TLS.

use std::io::IoSlice;

use slipstack_service::{ConnectionId, Context};

use crate::http::request::Skip;
use crate::tls::Transport;

/// Bytes of a chunked body in which the end of a line is searched for.
const LINES: usize = 1024;

/// A connection with the way to its bytes.
pub(super) struct End<'a> {
    pub(super) id: ConnectionId,
    pub(super) transport: &'a mut Transport,
}

/// Progress of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    All,
    /// More room is to come.
    Part,
    /// More bytes are to come.
    Starved,
    Broken,
}

/// Moves the available part of a body: its bytes, and the lines of chunks.
pub(super) fn move_body<R>(
    cx: &Context<'_, R>,
    from: &mut End<'_>,
    to: &mut End<'_>,
    rest: &mut Skip,
) -> Moved {
    while *rest != Skip::Nothing {
        if let Some(left) = rest.run() {
            let (moved, outcome) = move_run(cx, from, to, left);
            rest.take(moved);
            if outcome != Moved::All {
                return outcome;
            }
            continue;
        }
        let bytes = from.transport.lend(cx, from.id, LINES);
        let passed = pass_line(cx, &bytes, to, rest);
        if let Ok(len) = passed {
            from.transport.consume(cx, from.id, len);
        }
        from.transport.take_back(bytes);
        if let Err(outcome) = passed {
            return outcome;
        }
    }
    Moved::All
}

/// Passes the line of a chunk on. Returns its length.
fn pass_line<R>(
    cx: &Context<'_, R>,
    bytes: &[u8],
    to: &mut End<'_>,
    rest: &mut Skip,
) -> Result<usize, Moved> {
    let part = &bytes[..bytes.len().min(to.transport.room(cx, to.id))];
    let mut after = *rest;
    let len = after.pass(part).map_err(|_| Moved::Broken)?;
    if len == 0 && part.len() < bytes.len() {
        cx.await_room(to.id);
        return Err(Moved::Part);
    }
    if len == 0 {
        return Err(Moved::Starved);
    }
    let line = IoSlice::new(&part[..len]);
    if !to.transport.write_whole(cx, to.id, &[line]) {
        return Err(Moved::Broken);
    }
    *rest = after;
    Ok(len)
}

/// Moves up to `left` bytes. Returns how many there were, and room for.
pub(super) fn move_run<R>(
    cx: &Context<'_, R>,
    from: &mut End<'_>,
    to: &mut End<'_>,
    left: u64,
) -> (u64, Moved) {
    if let (Transport::Plain, Transport::Plain) = (&from.transport, &to.transport) {
        return move_plain(cx, from.id, to.id, left);
    }
    let mut moved = 0;
    while moved < left {
        let most = usize::try_from(left - moved).unwrap_or(usize::MAX);
        let bytes = from.transport.lend(cx, from.id, most);
        let written = match bytes.is_empty() {
            true => 0,
            false => to.transport.write(cx, to.id, &[IoSlice::new(&bytes)]),
        };
        from.transport.consume(cx, from.id, written);
        let (has_bytes, is_all) = (!bytes.is_empty(), written == bytes.len());
        from.transport.take_back(bytes);
        moved += written as u64;
        match (has_bytes, is_all) {
            (false, _) => return (moved, Moved::Starved),
            (true, false) => return (moved, Moved::Part),
            (true, true) => {}
        }
    }
    (moved, Moved::All)
}

/// As [`move_run`], without TLS: bytes are copied once, out of the ring.
fn move_plain<R>(
    cx: &Context<'_, R>,
    from: ConnectionId,
    to: ConnectionId,
    left: u64,
) -> (u64, Moved) {
    let most = usize::try_from(left).unwrap_or(usize::MAX);
    let [first, second] = cx.received(from).pieces();
    let first = &first[..first.len().min(most)];
    let second = &second[..second.len().min(most - first.len())];
    if first.is_empty() {
        return (0, Moved::Starved);
    }
    let written = cx.write_vectored(to, &[first, second].map(IoSlice::new));
    cx.consume(from, written);
    let outcome = match (written as u64 == left, cx.received(from).is_empty()) {
        (true, _) => Moved::All,
        (false, true) => Moved::Starved,
        (false, false) => Moved::Part,
    };
    (written as u64, outcome)
}
