//! Bits of SO_TIMESTAMPING: SOF_TIMESTAMPING_* (linux/net_tstamp.h).

pub(crate) const TX_SOFTWARE: u32 = 1 << 1;
pub(crate) const RX_SOFTWARE: u32 = 1 << 3;
pub(crate) const SOFTWARE: u32 = 1 << 4;
pub(crate) const OPT_ID: u32 = 1 << 7;
pub(crate) const TX_SCHED: u32 = 1 << 8;
pub(crate) const TX_ACK: u32 = 1 << 9;
pub(crate) const OPT_ID_TCP: u32 = 1 << 16;
/// The bits that a control message may set for one datagram: SOF_TIMESTAMPING_TX_RECORD_MASK.
pub(crate) const TX_RECORD: u32 = 1 | TX_SOFTWARE | TX_SCHED | TX_ACK | 1 << 18;
/// Transmit flags that this crate stamps, of a datagram.
pub(crate) const TX_ALL: u32 = TX_SOFTWARE | TX_SCHED;
