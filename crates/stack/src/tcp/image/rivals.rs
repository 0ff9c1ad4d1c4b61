//! Conflicts between a connection that moves in and a SYN of its peer that arrived before it, and
//! connections that no stack adopts.
//!
//! While a connection is being moved the steering table may already name its new engine. A late
//! copy of its SYN meets a listener there and begins a handshake; or the peer has started over. RFC
//! 9293 3.10.7.4, RFC 5961 4.2, RFC 6191.

use super::{ConnectionImage, FIN_RECEIVED, FIN_SENT, Fields, TIMESTAMPS};
use crate::counters::Counter;
use crate::effects::Effects;
use crate::error::SocketError;
use crate::fib::Choice;
use crate::network_layer::Cx;
use crate::tcp::flow::FlowState;
use crate::tcp::output::control;
use crate::tcp::output::emit::Envelope;
use crate::tcp::syn::SynEntry;
use crate::tcp::{Tcp, seq};
use crate::time::Instant;

impl Fields {
    /// Which way its packets are to go.
    pub(super) fn choice(&self) -> Choice {
        Choice {
            mark: self.choice_mark,
            table: self.choice_table,
            link: self.choice_link,
            input: 0,
            class: self.choice_class,
        }
    }

    pub(super) fn set_choice(&mut self, choice: Choice) {
        let Choice {
            mark,
            table,
            link,
            input: _,
            class,
        } = choice;
        (self.choice_mark, self.choice_table) = (mark, table);
        (self.choice_link, self.choice_class) = (link, class);
    }

    /// Returns whether the two sides have ended and only the ACK of our FIN is missing.
    fn is_spent(&self) -> bool {
        self.has(FIN_RECEIVED) && self.has(FIN_SENT) && self.una >= self.written
    }

    /// RFC 6191 2, RFC 1122 4.2.2.13: the SYN of the entry is that of a later connection.
    fn is_outlived_by(&self, entry: &SynEntry) -> bool {
        if self.has(TIMESTAMPS) && entry.has_timestamps {
            return seq::is_older(self.ts_recent, entry.ts_recent);
        }
        seq::is_older(seq::to_wire(self.irs, self.rcv_nxt), entry.irs)
    }
}

/// An entry of the table of half-open connections, and the hash of its flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct HashedSyn {
    pub index: u32,
    pub hash: u64,
}

impl Tcp {
    /// Handles a SYN of the peer that arrived before its connection did. `Err`: the connection
    /// gives way.
    pub(super) fn settle_rivals(
        &mut self,
        syn: HashedSyn,
        fields: &Fields,
        now: Instant,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> Result<(), SocketError> {
        let entry = self.syns.entries.at(syn.index);
        // In one table the peer's new SYN would meet LAST-ACK or CLOSING, and the answer to the
        // challenge would end a connection that only waits for an ACK (RFC 9293 3.10.7.4): the
        // handshake is already one step further.
        if fields.is_spent() && entry.is_some_and(|entry| fields.is_outlived_by(entry)) {
            return Err(SocketError::FlowExists);
        }
        // RFC 5961 4.2: no SYN ends a connection. The ACK that the adopter owes is the challenge.
        let Some(mut entry) = self.drop_syn(syn.index, syn.hash) else {
            return Ok(());
        };
        cx.counters.bump(Counter::TcpSynExpired);
        // A copy of its own SYN has no consequence. Another one's sender may have our SYN-ACK, and
        // is to know.
        if entry.irs != fields.irs && !entry.is_owed {
            entry.reset(now, cx, fx);
        }
        Ok(())
    }

    /// Resets the peer of a connection that cannot be adopted, unless a connection here has the
    /// same ends.
    pub fn refuse(
        &mut self,
        now: Instant,
        image: &ConnectionImage,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(f) = Fields::read(&image.bytes).filter(Fields::is_sound) else {
            return;
        };
        let hash = self.hasher.table(&f.key);
        let place = self.find_place(&f.key, hash);
        let is_free = matches!(place, None | Some(FlowState::TimeWait(_)));
        if is_free && cx.net.is_own(f.key.local_ip()) {
            // A RST beyond the peer's window would only be challenged.
            let at = f.nxt.min(f.snd_edge.max(f.una));
            let numbers = control::ResetNumbers {
                seq: seq::to_wire(f.iss, at),
                ack: seq::to_wire(f.irs, f.rcv_nxt),
            };
            let envelope = Envelope {
                key: &f.key,
                tos: f.tos,
                ttl: f.ttl.max(1),
                choice: cx.net.choices.note(f.choice()),
                may_be_cut: false,
            };
            control::reset(envelope, numbers, &mut None, now, cx, fx);
        }
    }
}
