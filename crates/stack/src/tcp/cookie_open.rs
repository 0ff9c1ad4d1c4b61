//! Passive opens without a SYN entry: the SYN-ACK carries the whole state, and the ACK returns it
//! (RFC 4987 3.6).

use slipstack_wire::tcp::TcpFlags;

use super::arrival::{Arrival, HalfOpen, Handshake};
use super::cookie::{EPOCH_NS, StampedOptions, Subject};
use super::syn::{self, Numbers, SynEntry};
use super::{Tcp, isn};
use crate::counters::Counter;
use crate::effects::Effects;
use crate::network_layer::Cx;
use crate::time::Instant;

impl Tcp {
    /// Answers a SYN and keeps nothing of it.
    pub(super) fn answer_with_cookie(
        &mut self,
        now: Instant,
        mut entry: SynEntry,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let stamped = entry.has_timestamps.then_some(StampedOptions {
            shift: entry.peer_shift,
            has_sack: entry.has_sack,
        });
        // A cookie has no room for it.
        entry.has_ecn = false;
        if stamped.is_none() {
            // Nowhere to keep them.
            entry.peer_shift = u8::MAX;
            entry.has_sack = false;
        }
        let subject = Subject {
            key: &entry.key,
            mask: self.hasher.sequence(&entry.key) as u32,
            irs: entry.irs,
            stamped,
        };
        // DEVIATION(RFC 9293 3.4.1): the initial number does not follow the clock while cookies are
        // sent.
        (entry.iss, entry.mss) = self.cookies.seal(now, &subject, entry.mss, cx.rng);
        self.listeners
            .expect_cookies(&entry.key, now.plus_nanos(2 * EPOCH_NS));
        let clock = isn::timestamp(now, 0);
        let stamp = stamped.map_or(clock, |options| options.stamp(clock));
        cx.counters.bump(Counter::TxTcpCookies);
        entry.answer_stamped(now, stamp.wrapping_add(entry.ts_offset), cx, fx);
    }

    /// Handles an ACK for no flow: returns `true` if it carries a valid cookie and has opened a
    /// connection.
    ///
    /// A flood of ACKs costs one MAC each, and only while cookies are out; an ACK without a valid
    /// cookie is answered like any other unexpected segment, within the limit of resets.
    pub(super) fn take_cookie(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> bool {
        let &Arrival { key, segment, .. } = arrival;
        let control = segment.flags.0 & (TcpFlags::SYN | TcpFlags::RST | TcpFlags::ACK).0;
        if control != TcpFlags::ACK.0 || !self.listeners.expects_cookies(key, now) {
            return false;
        }
        let Some(entry) = self.restore(now, arrival, cx) else {
            cx.counters.bump(Counter::RxTcpBadCookies);
            return false;
        };
        let handshake = Handshake {
            half: HalfOpen::Carried(&entry),
            listener: entry.listener,
        };
        let opened = self.admit(now, arrival, handshake, cx, fx);
        if opened.is_some() {
            cx.counters.bump(Counter::RxTcpCookies);
        }
        true
    }

    /// The SYN entry that was never stored.
    fn restore(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        cx: &mut Cx<'_>,
    ) -> Option<SynEntry> {
        let &Arrival {
            key, segment, link, ..
        } = arrival;
        let id = self.listeners.choose(key, link, &self.hasher)?;
        let listener = self.listeners.find(id)?;
        let choice = cx.net.choices.find(listener.preset.choice);
        cx.net.find_path_by(now, &key.query().by(choice))?;
        let secret = self.hasher.sequence(key);
        let ts_offset = isn::timestamp_offset(secret);
        let (irs, iss) = (segment.seq.wrapping_sub(1), segment.ack.wrapping_sub(1));
        let timestamps = segment.timestamps().filter(|_| cx.config.tcp.timestamps);
        let stamped = timestamps.map(|t| StampedOptions::of_stamp(t.echo.wrapping_sub(ts_offset)));
        let subject = Subject {
            key,
            mask: secret as u32,
            irs,
            stamped,
        };
        let mss = self.cookies.open(now, &subject, iss, cx.rng)?;
        let preset = &listener.preset;
        let numbers = Numbers {
            iss,
            irs,
            ts_offset,
        };
        let mut entry = syn::entry_for(key, id, numbers, preset, cx.net);
        entry.sent_at = now;
        entry.mss = mss;
        // No round trip is measured, because the time of the SYN-ACK is unknown.
        entry.tries = 1;
        if let (Some(timestamps), Some(options)) = (timestamps, stamped) {
            entry.has_timestamps = true;
            entry.ts_recent = timestamps.value;
            entry.peer_shift = options.shift;
            entry.has_sack = options.has_sack;
        }
        Some(entry)
    }
}
