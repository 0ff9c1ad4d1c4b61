//! Segments that steering brought here although another engine has their flow.
//!
//! While the keeper changes who serves a port, frames are on their way and half-open connections are
//! in nobody's directory yet. A segment that meets nothing here goes to the keeper, which knows who
//! else listens, instead of being answered with a reset. It says which engine that was. A datagram for a
//! port that nobody has here goes the same way: a program may be bound to it and not wait yet.

use slipstack_channel::stray_source;
use slipstack_mem::MpscInbox;
use slipstack_stack::{DatagramIn, IpMeta};

use crate::world::World;

/// The keeper's slot.
pub(crate) const KEEPER: usize = 0;
/// Where a segment keeps its flags.
const FLAGS_AT: usize = 13;
const RST: u8 = 4;

impl World {
    /// Hands a segment to the keeper. `false`: there is none, it is to be answered here.
    #[cold]
    pub(crate) fn send_stray(&mut self, ip: &IpMeta, segment: &[u8]) -> bool {
        let Some(fabric) = &self.local.fabric else {
            return false;
        };
        // A reset that comes late is common, and nothing is lost with it but while flows move.
        let is_rst = segment.get(FLAGS_AT).is_some_and(|flags| flags & RST != 0);
        if is_rst && !fabric.is_moving(self.now.0) {
            return false;
        }
        let source = stray_source(fabric.own_slot());
        let Some(frame) = stray_frame(ip, segment, source, self.mac) else {
            return false;
        };
        // A keeper without room loses it as a wire would; the owner was not asked.
        if !fabric.post(KEEPER, &frame) {
            self.counters.local_lost += 1;
        }
        true
    }

    /// Hands a datagram for a port that nobody has here to the keeper. `false`: there is none, its sender is to be told.
    #[cold]
    pub(crate) fn send_stray_datagram(&mut self, datagram: &DatagramIn<'_>) -> bool {
        let Some(fabric) = &self.local.fabric else {
            return false;
        };
        let link = (stray_source(fabric.own_slot()), self.mac);
        for frame in slipstack_stack::datagram_frames(datagram, link) {
            if !fabric.post(KEEPER, &frame) {
                self.counters.local_lost += 1;
            }
        }
        true
    }
}

/// A frame that carries a segment on, shortened to what takes one place in an inbox. `None`: addresses of two families.
pub fn stray_frame(ip: &IpMeta, segment: &[u8], src: [u8; 6], dst: [u8; 6]) -> Option<Vec<u8>> {
    slipstack_stack::stray_frame(ip, segment, (src, dst), MpscInbox::CELL_BYTES)
}
