//! The fields of an image, and their plain form.

use crate::options::MtuDiscovery;
use crate::tcp::assembler::Range;
use crate::tcp::bounds::Bounds;
use crate::tcp::flow::{FlowKey, pack};
use crate::tcp::numbers::{Reader, Writer};
use crate::tcp::phase::Phase;

const VERSION: u32 = 9;
/// Ranges received out of order that move along.
pub(super) const RANGES: usize = 8;

/// The fields in the order in which they are written.
#[derive(Debug)]
pub(super) struct Fields {
    pub key: FlowKey,
    pub phase: Phase,
    pub flags: u32,
    pub iss: u32,
    pub irs: u32,
    pub una: u64,
    pub nxt: u64,
    pub written: u64,
    pub snd_edge: u64,
    pub wl1: u64,
    pub wl2: u64,
    pub snd_wnd: u32,
    pub wnd_max: u32,
    pub limit: u32,
    pub rcv_nxt: u64,
    pub rcv_edge: u64,
    pub consumed: u64,
    pub fin_at: u64,
    pub buffer: u32,
    pub ts_recent: u32,
    pub ts_offset: u32,
    pub srtt: u64,
    pub rttvar: u64,
    pub cwnd: u32,
    pub ssthresh: u32,
    pub keep_idle_ms: u32,
    pub keep_interval_ms: u32,
    pub user_timeout_ms: u32,
    pub linger2_ms: u32,
    pub peer_mss: u16,
    pub mss_max: u16,
    pub snd_shift: u8,
    pub rcv_shift: u8,
    pub keep_probes: u8,
    pub tos: u8,
    pub ttl: u8,
    pub congestion: u8,
    pub urgent_end: u64,
    pub peer_timeout: u16,
    pub segs_in: u32,
    pub segs_out: u32,
    pub data_segs_in: u32,
    pub data_segs_out: u32,
    pub retransmitted: u32,
    pub choice_mark: u32,
    pub choice_table: u16,
    pub choice_link: u16,
    pub choice_class: u8,
    pub rate_max: u32,
    pub rto_min_us: u32,
    pub rto_max_ms: u32,
    pub ack_delay_max_us: u32,
    pub hops_min: u8,
    pub ranges: [Range; RANGES],
}

pub(super) const TIMESTAMPS: u32 = 1;
pub(super) const SACK: u32 = 2;
pub(super) const SCALING: u32 = 4;
pub(super) const NO_DELAY: u32 = 8;
pub(super) const CORK: u32 = 16;
pub(super) const KEEP_ALIVE: u32 = 32;
pub(super) const FIN_QUEUED: u32 = 64;
pub(super) const FIN_SENT: u32 = 128;
pub(super) const FIN_RECEIVED: u32 = 256;
pub(super) const LIMIT_FIXED: u32 = 512;
pub(super) const BUFFER_FIXED: u32 = 1024;
pub(super) const ECN: u32 = 2048;
pub(super) const PASSIVE: u32 = 4096;
pub(super) const OWES_TIMEOUT: u32 = 8192;
pub(super) const REBUILT: u32 = 16_384;
pub(super) const LINEAR: u32 = 32_768;
/// Place of [`MtuDiscovery`]'s code among the flags, and its bits.
const DISCOVERY_AT: u32 = 16;
const DISCOVERY: u32 = 7;
const RESETS_AT_END: u32 = 1 << 19;

/// One list of fields for reading and writing.
macro_rules! each_field {
    ($action:ident, $f:expr, $io:expr) => {
        $action!(
            $f,
            $io,
            flags,
            iss,
            irs,
            una,
            nxt,
            written,
            snd_edge,
            wl1,
            wl2,
            snd_wnd,
            wnd_max,
            limit,
            rcv_nxt,
            rcv_edge,
            consumed,
            fin_at,
            buffer,
            ts_recent,
            ts_offset,
            srtt,
            rttvar,
            cwnd,
            ssthresh,
            keep_idle_ms,
            keep_interval_ms,
            user_timeout_ms,
            linger2_ms,
            peer_mss,
            mss_max,
            snd_shift,
            rcv_shift,
            keep_probes,
            tos,
            ttl,
            congestion,
            urgent_end,
            peer_timeout,
            segs_in,
            segs_out,
            data_segs_in,
            data_segs_out,
            retransmitted,
            choice_mark,
            choice_table,
            choice_link,
            choice_class,
            rate_max,
            rto_min_us,
            rto_max_ms,
            ack_delay_max_us,
            hops_min
        )
    };
}

macro_rules! put_fields {
    ($f:expr, $io:expr, $($name:ident),*) => { $( $io.put(&$f.$name.to_le_bytes()); )* };
}

macro_rules! take_fields {
    ($f:expr, $io:expr, $($name:ident),*) => { $( $f.$name = $io.number()?; )* };
}

impl Fields {
    pub fn write(&self, bytes: &mut [u8]) {
        let mut out = Writer::new(bytes);
        out.put(&VERSION.to_le_bytes());
        out.put(&pack(self.key.local_ip()));
        out.put(&pack(self.key.remote_ip()));
        out.put(&self.key.local_port.to_le_bytes());
        out.put(&self.key.remote_port.to_le_bytes());
        out.put(&[self.phase as u8]);
        each_field!(put_fields, self, out);
        for range in &self.ranges {
            out.put(&range.start.to_le_bytes());
            out.put(&range.end.to_le_bytes());
        }
    }

    pub fn read(bytes: &[u8]) -> Option<Fields> {
        let mut input = Reader::new(bytes);
        if input.number::<u32>()? != VERSION {
            return None;
        }
        let (local, remote) = (input.address()?, input.address()?);
        let (local_port, remote_port) = (input.number()?, input.number()?);
        let phase = Phase::from_byte(input.number()?)?;
        let mut fields = Fields::empty(FlowKey::new(local, local_port, remote, remote_port), phase);
        each_field!(take_fields, fields, input);
        for range in &mut fields.ranges {
            *range = Range {
                start: input.number()?,
                end: input.number()?,
            };
        }
        Some(fields)
    }

    pub fn bounds(&self) -> Bounds {
        Bounds {
            rto_min_us: self.rto_min_us,
            rto_max_ms: self.rto_max_ms,
            ack_delay_max_us: self.ack_delay_max_us,
            hops_min: self.hops_min,
            is_linear: self.flags & LINEAR != 0,
            mtu_discovery: self.mtu_discovery().unwrap_or_default(),
            resets_at_end: self.resets_at_end(),
        }
    }

    /// Returns `None` if the code stands for nothing.
    pub(super) fn mtu_discovery(&self) -> Option<MtuDiscovery> {
        MtuDiscovery::from_code((self.flags >> DISCOVERY_AT & DISCOVERY) as u8)
    }

    pub fn resets_at_end(&self) -> bool {
        self.flags & RESETS_AT_END != 0
    }

    pub fn set_bounds(&mut self, bounds: Bounds) {
        let Bounds {
            rto_min_us,
            rto_max_ms,
            ack_delay_max_us,
            hops_min,
            is_linear,
            mtu_discovery,
            resets_at_end,
        } = bounds;
        self.flags |= LINEAR * u32::from(is_linear);
        self.flags |= RESETS_AT_END * u32::from(resets_at_end);
        self.flags |= u32::from(mtu_discovery.code()) << DISCOVERY_AT;
        (self.rto_min_us, self.rto_max_ms) = (rto_min_us, rto_max_ms);
        (self.ack_delay_max_us, self.hops_min) = (ack_delay_max_us, hops_min);
    }

    pub fn empty(key: FlowKey, phase: Phase) -> Fields {
        Fields {
            key,
            phase,
            flags: 0,
            iss: 0,
            irs: 0,
            una: 0,
            nxt: 0,
            written: 0,
            snd_edge: 0,
            wl1: 0,
            wl2: 0,
            snd_wnd: 0,
            wnd_max: 0,
            limit: 0,
            rcv_nxt: 0,
            rcv_edge: 0,
            consumed: 0,
            fin_at: 0,
            buffer: 0,
            ts_recent: 0,
            ts_offset: 0,
            srtt: 0,
            rttvar: 0,
            cwnd: 0,
            ssthresh: 0,
            keep_idle_ms: 0,
            keep_interval_ms: 0,
            user_timeout_ms: 0,
            linger2_ms: 0,
            peer_mss: 0,
            mss_max: 0,
            snd_shift: 0,
            rcv_shift: 0,
            keep_probes: 0,
            tos: 0,
            ttl: 0,
            congestion: 0,
            urgent_end: 0,
            peer_timeout: 0,
            segs_in: 0,
            segs_out: 0,
            data_segs_in: 0,
            data_segs_out: 0,
            retransmitted: 0,
            choice_mark: 0,
            choice_table: 0,
            choice_link: 0,
            choice_class: 0,
            rate_max: 0,
            rto_min_us: 0,
            rto_max_ms: 0,
            ack_delay_max_us: 0,
            hops_min: 0,
            ranges: [Range { start: 0, end: 0 }; RANGES],
        }
    }
}
