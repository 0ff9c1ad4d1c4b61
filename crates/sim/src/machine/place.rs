//! A stack's place in a machine: an engine's or the keeper's.

use std::collections::HashMap;
use std::net::IpAddr;

use slipstack_stack::{Ends, Instant, IpMeta, RxMeta, stray_frame};

use super::flow::{FLAGS_AT, KEEPER, STRAY_BYTES_MAX};
use super::inbox::Message;
use super::keeper::Keeper;

/// Time for which resets are passed on after ports have changed hands.
const MOVING_NS: u64 = 2_000_000_000;
const RST: u8 = 4;

/// The place of a stack in a machine.
#[derive(Debug)]
pub enum Participant {
    Engine(Engine),
    Keeper(Box<Keeper>),
}

/// The engine's side of the inboxes.
#[derive(Debug)]
pub struct Engine {
    pub slot: u16,
    /// The machine's link-layer address.
    mac: [u8; 6],
    /// Neighbours that the keeper has published.
    pub neighbours: HashMap<IpAddr, [u8; 6]>,
    pub now: Instant,
    /// Time at which ports last changed hands.
    pub moved_at: Option<Instant>,
}

impl Engine {
    pub fn new(slot: u16, mac: [u8; 6]) -> Self {
        Self {
            slot,
            mac,
            neighbours: HashMap::new(),
            now: Instant::ZERO,
            moved_at: None,
        }
    }

    /// As `slipstack_engine` does it: to the keeper, but late resets only while flows move.
    pub fn stray(&self, ip: &IpMeta, segment: &[u8]) -> Option<(u16, Message)> {
        let is_rst = segment.get(FLAGS_AT).is_some_and(|flags| flags & RST != 0);
        let is_moving = self
            .moved_at
            .is_some_and(|at| self.now.nanos_since(at) < MOVING_NS);
        if is_rst && !is_moving {
            return None;
        }
        let frame = stray_frame(ip, segment, Ends::new([0; 6], self.mac), STRAY_BYTES_MAX)?;
        let message = Message::Frame {
            frame,
            meta: RxMeta::LOCAL,
            origin: Some(self.slot),
        };
        Some((KEEPER, message))
    }
}
