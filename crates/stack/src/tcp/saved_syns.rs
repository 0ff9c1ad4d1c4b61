//! Headers of SYNs that are kept for the program (TCP_SAVE_SYN).

use alloc::collections::BTreeMap;

use slipstack_terms::SavedSyn;
use slipstack_wire::tcp::TcpSegment;

use super::Tcp;
use super::flow::{FlowKey, FlowState};
use crate::ids::ConnId;
use crate::ip::IpMeta;
use crate::options::SocketOptions;

/// Number of entries at which those of ended flows are dropped, at least.
const SWEEP_MIN: usize = 256;

/// Saved SYNs, at most one for each half-open connection and each connection whose program has not
/// taken it yet, and as many that have ended since the last sweep.
#[derive(Debug, Default)]
pub struct SavedSyns {
    /// A listener has had the option.
    is_wanted: bool,
    /// By the demultiplexer's hash of the flow.
    kept: BTreeMap<u64, Kept>,
    /// Number of entries at which the next sweep is due.
    sweep_at: usize,
}

#[derive(Debug)]
struct Kept {
    key: FlowKey,
    irs: u32,
    syn: SavedSyn,
}

impl Kept {
    fn is_of(&self, key: &FlowKey, irs: u32) -> bool {
        self.key == *key && self.irs == irs
    }
}

impl Tcp {
    #[inline]
    pub fn saves_syns(&self) -> bool {
        self.saved_syns.is_wanted
    }

    /// Saves SYNs from the first listener on that asks for them.
    pub(super) fn save_syns_for(&mut self, options: &SocketOptions) {
        self.saved_syns.is_wanted |= options.saves_syn;
    }

    /// Saves the headers of a packet that has been processed, if it is the first SYN of a flow
    /// whose listener asks for them (tcp_reqsk_record_syn()). A SYN that was answered with a cookie
    /// has left nothing behind.
    #[cold]
    pub fn save_syn(&mut self, ip: &IpMeta, network: &[u8], segment: &[u8]) {
        let Some(parsed) = TcpSegment::parse(segment) else {
            return;
        };
        let header = &parsed.header;
        if !header.flags.is_syn() || header.flags.is_ack() {
            return;
        }
        let key = FlowKey::new(ip.dst, header.dst_port, ip.src, header.src_port);
        let hash = self.hasher.table(&key);
        let irs = match self.find_place(&key, hash) {
            Some(FlowState::Syn(index)) => self.syns.entries.at(index).map(|entry| entry.irs),
            Some(FlowState::Connection(index)) => self
                .conns
                .at(index)
                .filter(|conn| conn.is_passive)
                .map(|conn| conn.rcv.irs),
            Some(FlowState::TimeWait(_)) | None => None,
        };
        let kept = self.saved_syns.kept.get(&hash);
        if irs != Some(header.seq) || kept.is_some_and(|it| it.is_of(&key, header.seq)) {
            return;
        }
        let id = self.listeners.choose(&key, Some(ip.link), &self.hasher);
        let listener = id.and_then(|id| self.listeners.find(id));
        if !listener.is_some_and(|it| it.options.socket.saves_syn) {
            return;
        }
        let header_len = segment.len() - parsed.payload.len();
        if let Some(syn) = SavedSyn::of(network, &segment[..header_len]) {
            let irs = header.seq;
            self.sweep_saved_syns();
            self.saved_syns.kept.insert(hash, Kept { key, irs, syn });
        }
    }

    /// Takes the headers of the SYN that opened a connection.
    pub fn take_saved_syn(&mut self, id: ConnId) -> Option<SavedSyn> {
        let conn = self.conns.find(id.index, id.generation)?;
        let (key, irs) = (conn.key, conn.rcv.irs);
        let hash = self.hasher.table(&key);
        let is_there = self.saved_syns.kept.get(&hash)?.is_of(&key, irs);
        let kept = self.saved_syns.kept.remove(&hash);
        kept.filter(|_| is_there).map(|it| it.syn)
    }

    /// Drops those of flows that have ended, once they may be half of all.
    fn sweep_saved_syns(&mut self) {
        if self.saved_syns.kept.len() < self.saved_syns.sweep_at.max(SWEEP_MIN) {
            return;
        }
        let mut kept = core::mem::take(&mut self.saved_syns.kept);
        kept.retain(|hash, it| {
            let place = self.find_place(&it.key, *hash);
            matches!(place, Some(FlowState::Syn(_) | FlowState::Connection(_)))
        });
        self.saved_syns.sweep_at = 2 * kept.len();
        self.saved_syns.kept = kept;
    }

    #[cfg(test)]
    pub fn saved_syns_len(&self) -> usize {
        self.saved_syns.kept.len()
    }
}
