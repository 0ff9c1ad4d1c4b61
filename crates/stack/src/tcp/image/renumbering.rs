//! A connection in new rings, whose streams begin at 0.

use super::{ConnectionImage, FIN_QUEUED, FIN_SENT, Fields, RANGES, Range};
use crate::tcp::seq;

impl ConnectionImage {
    /// Returns the connection with streams that begin at 0 with the bytes not acknowledged and
    /// read: for rings that are new. `None` if something is unacknowledged, or this side has ended
    /// its stream.
    pub fn renumbered(&self) -> Option<ConnectionImage> {
        let mut fields = Fields::read(&self.bytes)?;
        let is_acked = fields.una == fields.nxt && fields.una == fields.written;
        let is_ended = fields.has(FIN_QUEUED) || fields.has(FIN_SENT);
        let sent = fields.una.checked_sub(seq::FIRST)?;
        let read = fields.consumed.checked_sub(seq::FIRST)?;
        if !is_acked || is_ended {
            return None;
        }
        fields.iss = fields.iss.wrapping_add(sent as u32);
        (fields.una, fields.nxt, fields.written) = (seq::FIRST, seq::FIRST, seq::FIRST);
        fields.snd_edge = fields.snd_edge.checked_sub(sent)?;
        fields.wl2 = fields.wl2.saturating_sub(sent);
        fields.irs = fields.irs.wrapping_add(read as u32);
        fields.consumed = seq::FIRST;
        fields.rcv_nxt = fields.rcv_nxt.checked_sub(read)?;
        fields.rcv_edge = fields.rcv_edge.checked_sub(read)?;
        fields.wl1 = fields.wl1.saturating_sub(read);
        for at in [&mut fields.fin_at, &mut fields.urgent_end] {
            *at = at.saturating_sub(read);
        }
        fields.ranges = [Range { start: 0, end: 0 }; RANGES];
        let mut image = self.clone();
        fields.write(&mut image.bytes);
        Some(image)
    }
}
