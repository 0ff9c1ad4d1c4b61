//! Counts of the flows of rules with `limit`: of this stack, and of all stacks of a device.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::fmt;

use super::packet::Packet;
use crate::rng::SipKey;
use slipstack_terms::LimitBy;

/// Keeps the key of counts apart from other uses of the key of all stacks.
const DOMAIN: u64 = 0x6c69_6d69_7473;

/// Counts that several stacks share. Keys are hashes, the same in every stack.
pub trait SharedLimits: Send + Sync + fmt::Debug {
    /// Counts one more flow of this stack. Returns how many there are in all stacks, or `None` if
    /// there is no room for another count.
    fn enter(&self, key: u64) -> Option<u32>;

    /// One flow less of this stack.
    fn leave(&self, key: u64);

    /// Forgets the flows of this stack.
    fn clear(&self);
}

/// Counts of all stacks, and the key of their hashes.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    pub shared: Arc<dyn SharedLimits>,
    pub key: SipKey,
}

impl Board {
    pub fn new(shared: Arc<dyn SharedLimits>, key: [u64; 2]) -> Board {
        let [k0, k1] = key;
        let key = SipKey {
            k0: k0 ^ DOMAIN,
            k1,
        };
        Board { shared, key }
    }

    fn hash(&self, &Alike { rule, from, to }: &Alike) -> u64 {
        let half = |bits: u128| [(bits >> 64) as u64, bits as u64];
        let [[from_high, from_low], [to_high, to_low]] = [half(from.0), half(to.0)];
        let ports = u64::from(from.1) << 32 | u64::from(to.1);
        let words = [rule, from_high, from_low, to_high, to_low, ports];
        self.key.mac_words(words)
    }
}

/// Address as packets have it, and port.
type Host = (u128, u32);

/// The fields by which flows of one rule are counted together; zeros for those that do not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Alike {
    rule: u64,
    from: Host,
    to: Host,
}

impl Alike {
    pub fn new(rule: u64, by: LimitBy, packet: &Packet) -> Alike {
        let part = |is_it: bool, value: u128| if is_it { value } else { 0 };
        let port = |is_it: bool, value: u32| if is_it { value } else { 0 };
        Alike {
            rule,
            from: (
                part(by.source, packet.src),
                port(by.source_port, packet.ports.0),
            ),
            to: (
                part(by.destination, packet.dst),
                port(by.destination_port, packet.ports.1),
            ),
        }
    }
}

/// The number of flows for each [`Alike`].
#[derive(Debug, Default)]
pub(super) struct Counts {
    own: BTreeMap<Alike, u32>,
    pub board: Option<Board>,
}

impl Counts {
    /// Counts one more flow, unless there are `max` in all stacks. Of stacks that count at one
    /// moment each may find the limit exceeded, so that too few are let in, never too many.
    pub fn enter(&mut self, alike: Alike, max: u32) -> bool {
        let own = self.own.get(&alike).copied().unwrap_or(0);
        if own >= max {
            return false;
        }
        if let Some(board) = &self.board {
            let key = board.hash(&alike);
            match board.shared.enter(key) {
                Some(all) if all <= max => {}
                Some(_) => {
                    board.shared.leave(key);
                    return false;
                }
                None => return false,
            }
        }
        self.own.insert(alike, own + 1);
        true
    }

    pub fn leave(&mut self, alike: &Alike) {
        let Some(count) = self.own.get_mut(alike) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.own.remove(alike);
        }
        if let Some(board) = &self.board {
            board.shared.leave(board.hash(alike));
        }
    }

    /// Returns whether other stacks wait for flows of this one to end.
    pub fn is_awaited(&self) -> bool {
        self.board.is_some() && !self.own.is_empty()
    }
}
