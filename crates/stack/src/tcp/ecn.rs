//! Explicit congestion notification (RFC 3168; RFC 8257 3 for DCTCP).
//!
//! A peer that asks for more accurate feedback (RFC 9768: AE, CWR and ECE in its SYN) is answered
//! as one that asks for RFC 3168, which its specification provides for: the AE bit is not looked
//! at.

use slipstack_wire::tcp::TcpFlags;

use crate::config::EcnMode;
use crate::options::Congestion;

/// RFC 3168 5: the field's values in the TOS byte.
pub const MASK: u8 = 3;
const ECT0: u8 = 2;
const CE: u8 = 3;
/// The two flags of an ECN-setup SYN (RFC 3168 6.1.1).
pub const SETUP: TcpFlags = TcpFlags::ECE.union(TcpFlags::CWR);

/// ECN as agreed, and the echo that is owed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ecn {
    /// In the TOS byte of new data: ECT(0), or 0 while ECN is not used.
    pub ect: u8,
    /// In every ACK: ECE while the mark has to be echoed.
    pub echo: TcpFlags,
    /// In the next new data: CWR, the window was reduced.
    pub cwr: TcpFlags,
}

impl Ecn {
    #[inline]
    pub fn is_on(self) -> bool {
        self.ect != 0
    }

    /// Begins the use of ECN, on which the two sides have agreed.
    pub fn agree(&mut self) {
        self.ect = ECT0;
    }
}

/// Returns the flags that answer a packet with this mark.
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

/// Returns whether the offer of a SYN with these flags and this mark is taken.
///
/// A SYN must not be marked as ECN-capable itself (RFC 3168 6.1.1); one that is comes from
/// something that mangles.
pub fn accepts(mode: EcnMode, kind: Congestion, flags: TcpFlags, mark: TcpFlags) -> bool {
    flags.contains(SETUP) && mark == TcpFlags::NONE && (mode != EcnMode::Off || kind.needs_ecn())
}

/// RFC 3168 6.1.1: a SYN-ACK with ECE and without CWR agrees.
pub fn is_agreed(syn_ack: TcpFlags) -> bool {
    syn_ack.contains(TcpFlags::ECE) && !syn_ack.contains(TcpFlags::CWR)
}
