//! Urgent data: one byte that is announced ahead of the others.
//!
//! RFC 9293 3.8.5, RFC 6093. The pointer is read and written as Linux does (RFC 6093 3.1:
//! `tcp_stdurg` = 0): it names the byte after the urgent one. Its state is in allocations that
//! exist anyway while data is in flight; a connection that never sees urgent data has no state for
//! it, and its fast paths have no test for it.

use slipstack_wire::tcp::TcpFlags;

use super::assembler::{Assembler, Urgent};
use super::connection::Connection;
use super::segment::Segment;
use super::seq;
use crate::effects::{Effects, Event};

/// Farthest that a pointer reaches.
const REACH: u64 = 0xffff;

/// Marks the bytes before `upto` as urgent.
pub fn mark(conn: &mut Connection, upto: u64) {
    if upto > conn.snd.una {
        conn.flight_mut().urgent_end = upto;
        conn.opts.manner.set_urgent(true);
        conn.is_dirty = true;
    }
}

/// SND.UP, while it is not acknowledged.
#[inline]
pub fn end(conn: &Connection) -> Option<u64> {
    if !conn.opts.manner.may_be_urgent() {
        return None;
    }
    find_end(conn)
}

#[cold]
fn find_end(conn: &Connection) -> Option<u64> {
    let end = conn.flight.as_ref()?.urgent_end;
    (end > conn.snd.una).then_some(end)
}

/// Returns whether urgent data is under way; forgets that there was any.
#[cold]
pub fn settle(conn: &mut Connection) -> bool {
    let is_on = find_end(conn).is_some();
    conn.opts.manner.set_urgent(is_on);
    is_on
}

/// The flag and the pointer of a segment that begins at `start`.
#[inline]
pub fn pointer(conn: &Connection, start: u64) -> (TcpFlags, u16) {
    match end(conn) {
        Some(end) => pointer_to(end, start, conn.snd.nxt),
        None => (TcpFlags::NONE, 0),
    }
}

/// Returns the URG flag and pointer. A mark farther than the pointer reaches is announced once
/// everything up to there has been sent (as on Linux).
#[cold]
fn pointer_to(end: u64, start: u64, nxt: u64) -> (TcpFlags, u16) {
    if start >= end {
        (TcpFlags::NONE, 0)
    } else if end - start <= REACH {
        (TcpFlags::URG, (end - start) as u16)
    } else if start + REACH > nxt {
        (TcpFlags::URG, REACH as u16)
    } else {
        (TcpFlags::NONE, 0)
    }
}

/// Returns whether a segment has to be examined for urgent data.
#[inline]
pub fn concerns(conn: &Connection, segment: &Segment<'_>) -> bool {
    let is_awaited = |assembler: &Assembler| assembler.urgent.is_some();
    segment.flags.contains(TcpFlags::URG) || conn.rcv.assembler.as_deref().is_some_and(is_awaited)
}

/// RFC 9293 3.10.7.4 (sixth). RFC 9293 3.8.5 (MUST-32): the program is notified when the pointer
/// advances, and when the byte is there.
#[cold]
pub fn on_segment(conn: &mut Connection, segment: &Segment<'_>, start: u64, fx: &mut impl Effects) {
    // RFC 9293 3.10.7.4 (sixth): after the peer's FIN the flag is ignored.
    if !conn.phase.may_receive() || conn.rcv.is_shut {
        return;
    }
    let (at, byte) = match find_mark(conn, segment, start) {
        Some(at) => (at, take_mark(conn, segment, start, at)),
        None => match take_byte(conn, segment, start) {
            Some((at, byte)) => (at, Some(byte)),
            None => return,
        },
    };
    fx.event(Event::Urgent {
        conn: conn.id,
        at: seq::offset(at),
        byte,
    });
}

/// Returns a mark beyond the known one; a mark in data that has arrived in order is ignored.
fn find_mark(conn: &Connection, segment: &Segment<'_>, start: u64) -> Option<u64> {
    if !segment.flags.contains(TcpFlags::URG) {
        return None;
    }
    let at = start + u64::from(segment.urgent.saturating_sub(1));
    let known = conn.rcv.assembler.as_deref().and_then(|it| it.urgent);
    let is_news = at >= conn.rcv.nxt && known.is_none_or(|known| at > known.at);
    is_news.then_some(at)
}

/// Remembers the mark while the byte there is not in order; gives it if it is here.
fn take_mark(conn: &mut Connection, segment: &Segment<'_>, start: u64, at: u64) -> Option<u8> {
    let byte = find_byte(at, segment, start);
    let has_byte = byte.is_some();
    let is_next = has_byte && start <= conn.rcv.nxt && at < conn.rcv.edge;
    if !is_next {
        let urgent = Some(Urgent { at, has_byte });
        conn.rcv.assembler.get_or_insert_default().urgent = urgent;
    } else if let Some(assembler) = &mut conn.rcv.assembler {
        assembler.urgent = None;
    }
    byte
}

/// The byte that a mark has announced.
fn take_byte(conn: &mut Connection, segment: &Segment<'_>, start: u64) -> Option<(u64, u8)> {
    let urgent = conn.rcv.assembler.as_deref_mut()?.urgent.as_mut()?;
    if urgent.has_byte {
        return None;
    }
    let byte = find_byte(urgent.at, segment, start)?;
    urgent.has_byte = true;
    Some((urgent.at, byte))
}

fn find_byte(at: u64, segment: &Segment<'_>, start: u64) -> Option<u8> {
    let skip = usize::try_from(at.checked_sub(start)?).ok()?;
    segment.payload.get(skip).copied()
}
