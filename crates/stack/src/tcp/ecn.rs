//! Explicit congestion notification (RFC 3168; RFC 8257 3 for DCTCP).
//!
//! A peer that asks for more accurate feedback (RFC 9768: AE, CWR and ECE in its SYN) is answered as one that asks for
//! RFC 3168, which its specification provides for: the AE bit is not looked at.

use slipstack_wire::tcp::TcpFlags;

use super::connection::Connection;
use super::output::ack_policy;
use super::segment::Segment;
use crate::config::EcnMode;
use crate::effects::Effects;
use crate::link::Cx;
use crate::options::Congestion;
use crate::time::Instant;

/// RFC 3168 5: the field's values in the TOS byte.
pub const MASK: u8 = 3;
const ECT0: u8 = 2;
const CE: u8 = 3;
/// Both bits: an ECN-setup SYN (RFC 3168 6.1.1).
pub const SETUP: TcpFlags = TcpFlags::ECE.union(TcpFlags::CWR);

/// What was agreed on and what is owed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ecn {
    /// In the TOS byte of new data: ECT(0), or 0 while ECN is not used.
    pub ect: u8,
    /// In every ACK: ECE while the peer has to hear of a mark.
    pub echo: TcpFlags,
    /// In the next new data: CWR, the window was reduced.
    pub cwr: TcpFlags,
}

impl Ecn {
    #[inline]
    pub fn is_on(self) -> bool {
        self.ect != 0
    }

    /// Both sides said yes.
    pub fn agree(&mut self) {
        self.ect = ECT0;
    }
}

/// What a marked packet is answered with.
#[inline]
pub fn mark_of(tos: u8) -> TcpFlags {
    if tos & MASK == CE {
        TcpFlags::ECE
    } else {
        TcpFlags::NONE
    }
}

/// RFC 3168 6.1.1: does our SYN offer ECN? One that got no answer is sent without (6.1.1.1).
pub fn offers(mode: EcnMode, kind: Congestion, tries: u8) -> bool {
    tries == 0 && (mode == EcnMode::On || kind.needs_ecn())
}

/// Is a SYN's offer taken?
///
/// A SYN must not be marked as ECN-capable itself (RFC 3168 6.1.1); one that is comes from something that mangles.
pub fn accepts(mode: EcnMode, kind: Congestion, syn: &Segment<'_>) -> bool {
    syn.flags.contains(SETUP)
        && syn.mark == TcpFlags::NONE
        && (mode != EcnMode::Off || kind.needs_ecn())
}

/// RFC 3168 6.1.1: a SYN-ACK with ECE and without CWR agrees.
pub fn is_agreed(syn_ack: &Segment<'_>) -> bool {
    syn_ack.flags.contains(TcpFlags::ECE) && !syn_ack.flags.contains(TcpFlags::CWR)
}

/// A segment of a connection that uses ECN came in.
pub fn on_segment(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) {
    // RFC 3168 6.1.5: packets without data are never ECN-capable, so their marks mean nothing.
    let has_data = !segment.payload.is_empty();
    if conn.cc.kind() == Congestion::Dctcp {
        if has_data && segment.mark != conn.ecn.echo {
            // RFC 8257 3.2: what came before the change is acknowledged with what held before it.
            if conn.rcv.nxt > conn.rcv.acked {
                ack_policy::send_ack(conn, now, cx, fx);
            }
            conn.ecn.echo = segment.mark;
            // The change itself is told at once, too (Linux: dctcp_ece_ack_update).
            conn.owe_ack();
        }
        return;
    }
    // RFC 3168 6.1.3: until the sender says CWR; a mark on that very packet is a new one.
    if has_data && segment.flags.contains(TcpFlags::CWR) {
        conn.ecn.echo = TcpFlags::NONE;
    }
    if has_data && segment.mark != TcpFlags::NONE {
        conn.ecn.echo = TcpFlags::ECE;
        // The sender hears of it at once (Linux: TCP_ECN_check_ce enters quick ACK mode).
        ack_policy::on_gap(conn);
    }
}
