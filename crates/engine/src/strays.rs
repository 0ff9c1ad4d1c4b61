//! Strays: segments that steering brought here although another engine has their flow.
//!
//! While the keeper changes the assignment of a port, frames are in flight and half-open
//! connections are in no flow directory yet. A segment that matches nothing here goes to the
//! keeper, which knows the other listeners, instead of being answered with a reset. The message
//! names this engine. A datagram for a port that no socket here has goes the same way: a program
//! may be bound to it without waiting yet.

use std::net::SocketAddr;

use slipstack_channel::{INBOX_STRAY_LEN, InboxMessage};
use slipstack_mem::MpscInbox;
use slipstack_stack::{DatagramIn, Ends, IpMeta, Member};

use crate::departed::{Flow, FrameRoute};
use crate::environment::Environment;

/// The keeper's slot.
pub(crate) const KEEPER: usize = 0;
/// Offset of a segment's flags.
const FLAGS_AT: usize = 13;
const RST: u8 = 4;

impl Environment {
    /// Hands a segment to the keeper. `false`: there is none, it is to be answered here.
    #[cold]
    pub(crate) fn send_stray(&mut self, ip: &IpMeta, segment: &[u8]) -> bool {
        let Some(interconnect) = &self.local.interconnect else {
            return false;
        };
        // A reset that comes late is common, and nothing is lost with it but while flows move.
        let is_rst = segment.get(FLAGS_AT).is_some_and(|flags| flags & RST != 0);
        if is_rst && !interconnect.is_moving(self.now.0) && self.departed.is_empty() {
            return false;
        }
        let Some(frame) = stray_frame(ip, segment, self.mac) else {
            return false;
        };
        if let Some(flow) = find_flow(ip, segment) {
            match self.departed.way(flow, self.now) {
                FrameRoute::Unknown => {}
                FrameRoute::Wait => {
                    self.departed.hold(flow, (ip.link, frame));
                    return true;
                }
                FrameRoute::Slot(slot) => {
                    let message = InboxMessage::Frame {
                        link: ip.link,
                        frame: &frame,
                    };
                    let is_taken = interconnect.post(usize::from(slot), &message);
                    self.counters.local_lost += u64::from(!is_taken);
                    return true;
                }
            }
        }
        let (slot, link) = (interconnect.own_slot(), ip.link);
        let frame = &frame;
        self.counters.strays += 1;
        // If the keeper has no room the frame is lost, as on a wire; its owner was not asked.
        if !interconnect.post(KEEPER, &InboxMessage::Stray { slot, link, frame }) {
            self.counters.local_lost += 1;
        }
        true
    }

    /// Hands a datagram for a port that no socket here has to the keeper. Returns `false` if there
    /// is no keeper, and the sender gets an ICMP error.
    #[cold]
    pub(crate) fn send_stray_datagram(&mut self, datagram: &DatagramIn<'_>) -> bool {
        let Some(interconnect) = &self.local.interconnect else {
            return false;
        };
        let (slot, link) = (interconnect.own_slot(), datagram.link);
        for frame in slipstack_stack::datagram_frames(datagram, Ends::new([0; 6], self.mac)) {
            let frame = &frame;
            self.counters.strays += 1;
            if !interconnect.post(KEEPER, &InboxMessage::Stray { slot, link, frame }) {
                self.counters.local_lost += 1;
            }
        }
        true
    }
}

impl Environment {
    /// Hands a datagram to the engine whose socket the BPF program of a group has chosen. Returns
    /// `false` if it cannot be reached.
    #[cold]
    pub(crate) fn send_chosen_datagram(
        &mut self,
        member: Member,
        datagram: &DatagramIn<'_>,
    ) -> bool {
        let Some(interconnect) = &self.local.interconnect else {
            return false;
        };
        let slot = usize::from(member.slot);
        if slot == KEEPER || member.slot == interconnect.own_slot() {
            return false;
        }
        for frame in slipstack_stack::datagram_frames(datagram, Ends::new([0; 6], self.mac)) {
            let message = InboxMessage::Chosen {
                link: datagram.link,
                rank: member.rank,
                frame: &frame,
            };
            if !interconnect.post(slot, &message) {
                self.counters.local_lost += 1;
            }
        }
        true
    }
}

fn find_flow(ip: &IpMeta, segment: &[u8]) -> Option<Flow> {
    let port = |at: usize| {
        let bytes = segment.get(at..at + 2)?;
        Some(u16::from_be_bytes(bytes.try_into().ok()?))
    };
    let (local, remote) = (port(2)?, port(0)?);
    Some((
        SocketAddr::new(ip.dst, local),
        SocketAddr::new(ip.src, remote),
    ))
}

/// Returns a frame that carries a segment on, shortened so that its message takes one cell of an
/// inbox; `None` if its addresses are of two families.
pub fn stray_frame(ip: &IpMeta, segment: &[u8], mac: [u8; 6]) -> Option<Vec<u8>> {
    let len_max = MpscInbox::CELL_BYTES - INBOX_STRAY_LEN;
    slipstack_stack::stray_frame(ip, segment, Ends::new([0; 6], mac), len_max)
}
