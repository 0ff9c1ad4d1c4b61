//! A connection in new rings, whose streams begin at 0.

use super::{ConnectionImage, Fields, RANGES, Range};
use crate::tcp::seq;

impl ConnectionImage {
    /// Returns the connection with this many more bytes received and not read. `None` if there
    /// were not as many.
    pub fn with_unread(&self, count: u64) -> Option<ConnectionImage> {
        let mut fields = Fields::read(&self.bytes)?;
        fields.consumed = fields.consumed.checked_sub(count)?;
        if fields.consumed < seq::FIRST {
            return None;
        }
        let mut image = self.clone();
        fields.write(&mut image.bytes);
        Some(image)
    }

    /// Returns the connection with streams that begin at 0, for rings that are new: the receiving
    /// one with the bytes not read, the sending one with the last `written` bytes that the program
    /// has written. `None` if bytes before these are not acknowledged.
    pub fn renumbered(&self, written: u64) -> Option<ConnectionImage> {
        let mut fields = Fields::read(&self.bytes)?;
        let sent = seq::offset(fields.written).checked_sub(written)?;
        let read = fields.consumed.checked_sub(seq::FIRST)?;
        if seq::offset(fields.una.max(seq::FIRST)) < sent {
            return None;
        }
        fields.iss = fields.iss.wrapping_add(sent as u32);
        for at in [
            &mut fields.una,
            &mut fields.nxt,
            &mut fields.written,
            &mut fields.snd_edge,
        ] {
            *at = at.checked_sub(sent)?;
        }
        for at in [&mut fields.wl2, &mut fields.urgent_end] {
            *at = at.saturating_sub(sent);
        }
        fields.irs = fields.irs.wrapping_add(read as u32);
        fields.consumed = seq::FIRST;
        fields.rcv_nxt = fields.rcv_nxt.checked_sub(read)?;
        fields.rcv_edge = fields.rcv_edge.checked_sub(read)?;
        for at in [&mut fields.wl1, &mut fields.fin_at] {
            *at = at.saturating_sub(read);
        }
        fields.ranges = [Range { start: 0, end: 0 }; RANGES];
        let mut image = self.clone();
        fields.write(&mut image.bytes);
        Some(image)
    }
}
