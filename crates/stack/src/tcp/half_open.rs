//! A half-open connection as plain bytes, to be moved to another engine whose listener takes it.
//!
//! The peer has our SYN-ACK, so the adopter must know the numbers in it. If the SYN-ACK has not
//! been sent yet, the adopter sends it. The adopter checks everything: the bytes may be hostile.

mod record;

use alloc::vec::Vec;

use slipstack_wire::user_timeout::UserTimeout;

use super::Tcp;
use super::flow::{FlowKey, FlowState, pack};
use super::numbers::{Reader, Writer};
use super::output::control;
use super::output::emit::Envelope;
use super::sizes::{MSS_MIN, WINDOW_SHIFT_MAX};
use super::syn::{Numbers, SynEntry};
use crate::choices::ChoiceId;
use crate::counters::Counter;
use crate::effects::Effects;
use crate::error::SocketError;
use crate::fib::Choice;
use crate::ids::ListenerId;
use crate::network_layer::Cx;
use crate::time::{Instant, nanos};

pub use record::HalfOpenRecord;

const VERSION: u32 = 3;
const SACK: u8 = 1;
const TIMESTAMPS: u8 = 2;
const ECN: u8 = 4;
/// The SYN-ACK has not been sent.
const OWED: u8 = 8;

/// A detached SYN entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HalfOpenImage {
    bytes: [u8; Self::LEN],
}

impl HalfOpenImage {
    /// Length of the plain form.
    pub const LEN: usize = 85;

    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        self.bytes
    }

    /// Takes bytes from anywhere; `tcp_adopt_half_open` validates them.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> HalfOpenImage {
        HalfOpenImage { bytes: *bytes }
    }

    /// Returns the two ends, if the bytes are an image at all: local, remote.
    pub fn endpoints(&self) -> Option<(core::net::SocketAddr, core::net::SocketAddr)> {
        let (entry, _) = read(&self.bytes)?;
        Some((entry.key.local(), entry.key.remote()))
    }
}

/// `rival` is the number of another answer; its distance is written, which is not zero.
fn write(entry: &SynEntry, rival: Option<u32>) -> HalfOpenImage {
    let mut bytes = [0; HalfOpenImage::LEN];
    let mut out = Writer::new(&mut bytes);
    out.put(&VERSION.to_le_bytes());
    out.put(&pack(entry.key.local_ip()));
    out.put(&pack(entry.key.remote_ip()));
    for number in [entry.key.local_port, entry.key.remote_port] {
        out.put(&number.to_le_bytes());
    }
    for number in [entry.iss, entry.irs, entry.ts_recent, entry.ts_offset] {
        out.put(&number.to_le_bytes());
    }
    out.put(&entry.sent_at.0.to_le_bytes());
    for number in [entry.mss, entry.our_mss, entry.window] {
        out.put(&number.to_le_bytes());
    }
    let sack = if entry.has_sack { SACK } else { 0 };
    let timestamps = if entry.has_timestamps { TIMESTAMPS } else { 0 };
    let ecn = if entry.has_ecn { ECN } else { 0 };
    let owed = if entry.is_owed { OWED } else { 0 };
    out.put(&[
        entry.peer_shift,
        entry.our_shift,
        entry.tries,
        entry.asked,
        sack | timestamps | ecn | owed,
        entry.tos,
        entry.ttl,
    ]);
    let peer_timeout = entry.peer_timeout.map_or(0, UserTimeout::field);
    out.put(&peer_timeout.to_le_bytes());
    let rival = rival.map_or(0, |iss| iss.wrapping_sub(entry.iss));
    out.put(&rival.to_le_bytes());
    HalfOpenImage { bytes }
}

fn read(bytes: &[u8]) -> Option<(SynEntry, Option<u32>)> {
    let mut input = Reader::new(bytes);
    if input.number::<u32>()? != VERSION {
        return None;
    }
    let (local, remote) = (input.address()?, input.address()?);
    let (local_port, remote_port) = (input.number()?, input.number()?);
    let key = FlowKey::new(local, local_port, remote, remote_port);
    let (iss, irs) = (input.number()?, input.number()?);
    let (ts_recent, ts_offset) = (input.number()?, input.number()?);
    let mut entry = blank(
        key,
        Numbers {
            iss,
            irs,
            ts_offset,
        },
    );
    entry.ts_recent = ts_recent;
    entry.sent_at = Instant(input.number()?);
    (entry.mss, entry.our_mss) = (input.number()?, input.number()?);
    entry.window = input.number()?;
    (entry.peer_shift, entry.our_shift) = (input.number()?, input.number()?);
    (entry.tries, entry.asked) = (input.number()?, input.number()?);
    let flags: u8 = input.number()?;
    (entry.has_sack, entry.has_timestamps) = (flags & SACK != 0, flags & TIMESTAMPS != 0);
    (entry.has_ecn, entry.is_owed) = (flags & ECN != 0, flags & OWED != 0);
    (entry.tos, entry.ttl) = (input.number()?, input.number()?);
    entry.peer_timeout = UserTimeout::from_field(input.number()?);
    let ahead: u32 = input.number()?;
    let rival = (ahead != 0).then(|| entry.iss.wrapping_add(ahead));
    Some((entry, rival))
}

/// An entry that knows the numbers only, and has no listener yet.
fn blank(key: FlowKey, numbers: Numbers) -> SynEntry {
    SynEntry {
        key,
        listener: ListenerId {
            index: 0,
            generation: 0,
        },
        iss: numbers.iss,
        irs: numbers.irs,
        ts_recent: 0,
        ts_offset: numbers.ts_offset,
        sent_at: Instant::ZERO,
        mss: 0,
        our_mss: 0,
        window: 0,
        peer_shift: 0,
        our_shift: 0,
        tries: 0,
        asked: 0,
        deferrals: 0,
        has_sack: false,
        has_timestamps: false,
        fast_open: None,
        told_timeout: None,
        peer_timeout: None,
        has_ecn: false,
        hop: None,
        tos: 0,
        ttl: 0,
        choice: ChoiceId::default(),
        is_owed: false,
    }
}

/// Returns whether the entry holds the invariants that the rest of the stack relies on.
fn is_sound(entry: &SynEntry) -> bool {
    entry.key.local_ip().is_ipv4() == entry.key.remote_ip().is_ipv4()
        && entry.key.local_port != 0
        && entry.key.remote_port != 0
        && entry.mss >= MSS_MIN
        && entry.our_mss >= MSS_MIN
        && entry.our_shift <= WINDOW_SHIFT_MAX
        && (entry.peer_shift == u8::MAX || entry.peer_shift <= WINDOW_SHIFT_MAX)
        && entry.ttl > 0
}

impl Tcp {
    /// Removes the half-open connections of a listener from this stack without sending anything.
    pub fn detach_half_open(&mut self, listener: ListenerId) -> Vec<HalfOpenImage> {
        let indices: Vec<u32> = self.syns.entries.indices(|e| e.listener == listener);
        indices
            .into_iter()
            .filter_map(|index| {
                let key = self.syns.entries.at(index)?.key;
                let hash = self.hasher.table(&key);
                let rival = self.syns.rival(index);
                Some(write(&self.drop_syn(index, hash)?, rival))
            })
            .collect()
    }

    /// Returns whether the entry here comes from a copy of the SYN of the one that moves, with a
    /// different SYN-ACK: a peer accepts the first answer. A peer that repeats its SYN after a
    /// timeout has none, and gets the one from here; its timeout began with the SYN, so half of it
    /// is the limit.
    fn is_copy(&self, index: u32, moved: &SynEntry, cx: &Cx<'_>) -> bool {
        let soon_ns = nanos(cx.config.tcp.rto_initial) / 2;
        let here = self.syns.entries.at(index);
        here.is_some_and(|here| {
            let is_soon = here.sent_at.nanos_since(moved.sent_at) < soon_ns;
            let is_single = self.syns.rival(index).is_none();
            is_single && here.irs == moved.irs && here.iss != moved.iss && is_soon
        })
    }

    /// Joins two handshakes of the same ends; of three answers two are kept.
    fn join_handshake(&mut self, index: u32, moved: &SynEntry, rival: Option<u32>) -> bool {
        let is_pair = rival.is_none() && self.syns.rival(index).is_none();
        is_pair && self.syns.join(index, moved)
    }

    /// Goes on with a handshake that another engine began, for the listener of its address here.
    pub fn adopt_half_open(
        &mut self,
        now: Instant,
        image: &HalfOpenImage,
        cx: &mut Cx<'_>,
    ) -> Result<(), SocketError> {
        let (mut entry, rival) = read(&image.bytes)
            .filter(|(entry, _)| is_sound(entry))
            .ok_or(SocketError::BadImage)?;
        if !cx.net.is_own(entry.key.local_ip()) {
            return Err(SocketError::AddrNotAvailable);
        }
        let id = self
            .listeners
            .choose(&entry.key, None, &self.hasher)
            .ok_or(SocketError::UnknownId)?;
        let hash = self.hasher.table(&entry.key);
        match self.find_place(&entry.key, hash) {
            None => {}
            // The peer has started over with the sender of this image.
            Some(FlowState::TimeWait(index)) => self.drop_time_wait(index, hash),
            // A copy of its SYN was answered here, with the same words: whichever answer the peer
            // takes will do.
            Some(FlowState::Syn(index)) if self.join_handshake(index, &entry, rival) => {
                return Ok(());
            }
            Some(FlowState::Syn(index)) if self.is_copy(index, &entry, cx) => {
                self.drop_syn(index, hash);
                cx.counters.bump(Counter::TcpSynExpired);
            }
            Some(_) => return Err(SocketError::FlowExists),
        }
        entry.listener = id;
        if let Some(listener) = self.listeners.find(id) {
            let deferrals = listener.preset.deferrals;
            entry.deferrals = deferrals.saturating_sub(entry.tries);
            entry.told_timeout = listener.preset.told_timeout;
            entry.choice = listener.preset.choice;
        }
        let heeds_timeouts = cx.config.tcp.user_timeout_option;
        entry.peer_timeout = entry.peer_timeout.filter(|_| heeds_timeouts);
        entry.sent_at = entry.sent_at.min(now);
        let wait = nanos(cx.config.tcp.rto_initial).saturating_mul(1 << entry.tries.min(7));
        let until = now.plus_nanos(wait.min(nanos(cx.config.tcp.rto_max)));
        let is_owed = entry.is_owed;
        let index = self.syns.insert(entry, until);
        let index = index.ok_or(SocketError::LimitReached)?;
        let place = FlowState::Syn(index);
        self.demux.insert(hash, place);
        if is_owed {
            self.dirty.push(place.pack());
        }
        if let Some(iss) = rival {
            self.syns.note_rival(index, iss);
        }
        if let Some(listener) = self.listeners.find_mut(id) {
            listener.half_open += 1;
        }
        Ok(())
    }

    /// Resets the peer of a half-open connection that no listener takes, unless a connection here
    /// has the same ends: it may have our SYN-ACK and wait for data. `link`: the listener's, as
    /// [`Choice::link`].
    pub fn refuse_half_open(
        &mut self,
        now: Instant,
        image: &HalfOpenImage,
        link: u16,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some((entry, rival)) = read(&image.bytes).filter(|(entry, _)| is_sound(entry)) else {
            return;
        };
        let hash = self.hasher.table(&entry.key);
        let place = self.find_place(&entry.key, hash);
        let is_free = matches!(place, None | Some(FlowState::TimeWait(_)));
        if !is_free || !cx.net.is_own(entry.key.local_ip()) {
            return;
        }
        let choice = cx.net.choices.note(Choice {
            link,
            ..Choice::default()
        });
        for iss in core::iter::once(entry.iss).chain(rival) {
            let numbers = control::ResetNumbers {
                seq: iss.wrapping_add(1),
                ack: entry.irs.wrapping_add(1),
            };
            let envelope = Envelope {
                key: &entry.key,
                tos: entry.tos,
                ttl: entry.ttl,
                choice,
                may_be_cut: false,
            };
            control::reset(envelope, numbers, &mut None, now, cx, fx);
        }
    }
}
