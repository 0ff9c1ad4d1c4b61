//! A segment for a connection block: the steps of RFC 9293 3.10.7.4, one call each.

pub mod acceptable;
pub mod ack;
pub mod fastpath;
pub mod fin;
pub mod last_fin;
pub mod marks;
pub mod rst_syn;
pub mod text;

use super::connection::Connection;
use super::output::ack_policy;
use super::segment::Segment;
use super::verdict::Verdict;
use super::{seq, urgent};
use crate::counters::Counter;
use crate::effects::Effects;
use crate::network_layer::Cx;
use crate::rate::RateLimit;
use crate::time::Instant;

/// Takes a segment of a connection that is beyond SYN-SENT. Nothing is sent here but resets and
/// challenges; ACKs leave with the next flush.
#[inline]
pub fn on_segment(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    challenges: &mut RateLimit,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Verdict {
    let start = seq::widen(conn.rcv.irs, conn.rcv.nxt, segment.seq);
    // First: PAWS and the sequence number.
    if !acceptable::check(conn, now, segment, start, challenges, cx, fx) {
        return Verdict::Alive;
    }
    // Second to fourth: RST, security, SYN.
    if segment.flags.is_rst() || segment.flags.is_syn() {
        return rst_syn::on_rst_or_syn(conn, now, segment, start, challenges, cx, fx);
    }
    // Fifth: ACK.
    if !segment.flags.is_ack() {
        cx.counters.bump(Counter::DropTcpNoAck);
        return Verdict::Alive;
    }
    match ack::on_ack(conn, now, segment, start, challenges, cx, fx) {
        ack::Outcome::Go => {}
        ack::Outcome::Drop => return Verdict::Alive,
        ack::Outcome::End(verdict) => {
            // Our FIN is acknowledged by text that the program does not read any more.
            if segment.len() > 0 {
                conn.owe_ack();
            }
            cx.counters.bump(Counter::RxTcpTaken);
            return verdict;
        }
    }
    // After the ACK: otherwise a forged mark would halve the peer's window.
    if conn.ecn.is_on() {
        marks::on_segment(conn, now, segment, cx, fx);
    }
    // Sixth: URG; the byte it points to may come later.
    if urgent::concerns(conn, segment) {
        urgent::on_segment(conn, segment, start, fx);
    }
    // Seventh: text.
    let text = match segment.payload.is_empty() {
        true => text::Outcome::Taken,
        false => text::on_text(conn, now, segment, start, cx, fx),
    };
    text.count(cx.counters);
    if text == text::Outcome::Dropped(Counter::DropTcpClosed) {
        return Verdict::Refused;
    }
    // Eighth: FIN.
    let mut verdict = Verdict::Alive;
    if segment.flags.is_fin() || conn.rcv.fin_at != 0 {
        verdict = fin::on_fin(conn, now, segment, start, cx, fx);
    }
    // The event reports text and FIN together, as on Linux; TIME-WAIT sends the ACK of the FIN.
    if verdict == Verdict::Alive && !segment.payload.is_empty() {
        ack_policy::tell_of_gaps(conn, now, cx, fx);
    }
    verdict
}
