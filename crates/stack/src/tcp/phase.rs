//! The states of a connection (RFC 9293 3.3.2) that need a connection block.
//!
//! LISTEN is a listener, SYN-RECEIVED of a passive open is a SYN entry, TIME-WAIT is an entry of
//! its own and CLOSED is the absence of all of them. SYN-RECEIVED appears here only for a
//! simultaneous open.

/// State of a connection block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    SynSent = 1,
    SynReceived = 2,
    Established = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    CloseWait = 6,
    Closing = 7,
    LastAck = 8,
}

impl Phase {
    pub fn from_byte(byte: u8) -> Option<Phase> {
        Some(match byte {
            1 => Phase::SynSent,
            2 => Phase::SynReceived,
            3 => Phase::Established,
            4 => Phase::FinWait1,
            5 => Phase::FinWait2,
            6 => Phase::CloseWait,
            7 => Phase::Closing,
            8 => Phase::LastAck,
            _ => return None,
        })
    }

    /// Returns whether the two sides know each other's initial sequence numbers.
    #[inline]
    pub fn is_synchronized(self) -> bool {
        self as u8 >= Phase::Established as u8
    }

    /// The peer may still send data. In SYN-RECEIVED only a SYN that Fast Open takes gets that far.
    #[inline]
    pub fn may_receive(self) -> bool {
        matches!(
            self,
            Phase::SynReceived | Phase::Established | Phase::FinWait1 | Phase::FinWait2
        )
    }

    /// Data or a FIN may be outstanding or waiting. In SYN-RECEIVED only Fast Open sends.
    #[inline]
    pub fn may_transmit(self) -> bool {
        matches!(
            self,
            Phase::SynReceived
                | Phase::Established
                | Phase::CloseWait
                | Phase::FinWait1
                | Phase::Closing
                | Phase::LastAck
        )
    }
}
