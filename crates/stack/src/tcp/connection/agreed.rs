//! Options of a connection: agreed in the handshake, or set by the program.

use slipstack_wire::tcp_options::TIMESTAMPS_LEN;

/// Options agreed in the handshake, and those that the program set.
#[derive(Clone, Debug)]
pub struct Options {
    pub has_timestamps: bool,
    pub has_sack: bool,
    pub has_scaling: bool,
    pub ts_offset: u32,
    pub no_delay: bool,
    pub manner: Manner,
    pub fixed: Fixed,
    pub keep_alive: bool,
    pub keep_probes: u8,
    pub keep_idle_ms: u32,
    pub keep_interval_ms: u32,
    /// 0 = none.
    pub user_timeout_ms: u32,
    /// `u32::MAX` = the configuration's default.
    pub linger2_ms: u32,
    pub mss_max: u16,
    pub tos: u8,
    pub ttl: u8,
}

impl Options {
    /// Returns the size of the peer's full segments: the announced MSS without the timestamps.
    pub fn full_segment(&self) -> u16 {
        let options = if self.has_timestamps {
            TIMESTAMPS_LEN as u16
        } else {
            0
        };
        self.mss_max.saturating_sub(options)
    }
}

/// Flags for values that the program has set and that are not tuned automatically, in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed(u8);

impl Fixed {
    const LIMIT: u8 = 0x80;

    pub fn of(has_limit: bool, syn_retries: Option<u8>) -> Fixed {
        let mut fixed = Fixed::default();
        fixed.set_limit(has_limit);
        fixed.set_syn_retries(syn_retries.unwrap_or(0));
        fixed
    }

    /// The limit of the send ring.
    #[inline]
    pub fn has_limit(self) -> bool {
        self.0 & Self::LIMIT != 0
    }

    pub fn set_limit(&mut self, on: bool) {
        self.0 = self.0 & !Self::LIMIT | if on { Self::LIMIT } else { 0 };
    }

    /// Retransmissions of a SYN (TCP_SYNCNT, 127 at most).
    pub fn syn_retries(self) -> Option<u8> {
        Some(self.0 & !Self::LIMIT).filter(|tries| *tries > 0)
    }

    pub fn set_syn_retries(&mut self, tries: u8) {
        self.0 = self.0 & Self::LIMIT | tries.min(!Self::LIMIT);
    }
}

/// The conditions that keep a connection from the send fast path, in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner(u8);

impl Manner {
    const CORKED: u8 = 1;
    const URGENT: u8 = 2;
    const OWES_TIMEOUT: u8 = 4;
    const REBUILT: u8 = 8;
    const DEFERS_ACK: u8 = 16;
    const RECORDS: u8 = 32;
    const MAY_BE_CUT: u8 = 64;

    pub fn of(is_corked: bool, owes_timeout: bool) -> Manner {
        let mut manner = Manner::default();
        manner.set_corked(is_corked);
        manner.set_owes_timeout(owes_timeout);
        manner
    }

    /// Returns whether its segments are ordinary ones, with or without DF.
    pub fn may_search(self) -> bool {
        self.0 & !Self::MAY_BE_CUT == 0
    }

    #[inline]
    pub fn is_plain(self) -> bool {
        self.0 == 0
    }

    /// TCP_CORK.
    #[inline]
    pub fn is_corked(self) -> bool {
        self.0 & Self::CORKED != 0
    }

    /// Urgent data may be under way (see [`crate::tcp::urgent`]).
    #[inline]
    pub fn may_be_urgent(self) -> bool {
        self.0 & Self::URGENT != 0
    }

    /// Returns whether bytes may be marked: as urgent, or as the end of a record.
    #[inline]
    pub fn may_have_marks(self) -> bool {
        self.0 & (Self::URGENT | Self::RECORDS) != 0
    }

    /// Returns whether the user timeout has to be announced to the peer (see
    /// [`crate::tcp::user_timeout`]).
    #[inline]
    pub fn owes_timeout(self) -> bool {
        self.0 & Self::OWES_TIMEOUT != 0
    }

    /// Returns whether a segment may carry something unusual.
    #[inline]
    pub fn may_say_more(self) -> bool {
        self.0 & (Self::URGENT | Self::OWES_TIMEOUT | Self::MAY_BE_CUT) != 0
    }

    /// Returns whether routers may cut its packets into fragments (IP_MTU_DISCOVER).
    pub fn may_be_cut(self) -> bool {
        self.0 & Self::MAY_BE_CUT != 0
    }

    pub fn set_may_be_cut(&mut self, on: bool) {
        self.set(Self::MAY_BE_CUT, on);
    }

    /// The former engine of the connection was killed, and may have sent more than is known here.
    #[inline]
    pub fn is_rebuilt(self) -> bool {
        self.0 & Self::REBUILT != 0
    }

    /// The handshake's last ACK waits for data that carries it (TCP_DEFER_ACCEPT).
    pub fn defers_ack(self) -> bool {
        self.0 & Self::DEFERS_ACK != 0
    }

    pub fn set_defers_ack(&mut self, on: bool) {
        self.set(Self::DEFERS_ACK, on);
    }

    pub fn set_rebuilt(&mut self, on: bool) {
        self.set(Self::REBUILT, on);
    }

    pub fn set_owes_timeout(&mut self, on: bool) {
        self.set(Self::OWES_TIMEOUT, on);
    }

    pub fn set_corked(&mut self, on: bool) {
        self.set(Self::CORKED, on);
    }

    /// Records may end among the unsent bytes (see [`crate::tcp::records`]).
    pub fn set_records(&mut self, on: bool) {
        self.set(Self::RECORDS, on);
    }

    pub fn set_urgent(&mut self, on: bool) {
        self.set(Self::URGENT, on);
    }

    fn set(&mut self, bit: u8, on: bool) {
        self.0 = if on { self.0 | bit } else { self.0 & !bit };
    }
}
