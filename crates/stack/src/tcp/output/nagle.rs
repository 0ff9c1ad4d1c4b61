//! The Nagle algorithm: whether a segment smaller than the MSS may leave (RFC 9293 3.7.4,
//! Minshall's variant; RFC 9293 3.8.6.2.1).

use crate::tcp::connection::Connection;
use crate::tcp::urgent;

/// Returns whether the tail of the written data, smaller than a segment, may leave.
#[inline]
pub fn may_send_tail(conn: &Connection) -> bool {
    // The last bytes before a FIN wait for nothing.
    if conn.snd.is_fin_queued {
        return true;
    }
    // RFC 9293 3.8.5: urgent data is pushed (as on Linux), even if corked.
    if urgent::end(conn).is_some() {
        return true;
    }
    if conn.opts.manner.is_corked() || conn.snd.has_more {
        return false;
    }
    // Minshall: one small segment in flight, not any segment.
    conn.opts.no_delay || conn.snd.small_end <= conn.snd.una
}

/// The window cuts a segment short: RFC 9293 3.8.6.2.1 (3), at least half of the largest window.
pub fn may_send_cut(conn: &Connection, len: u64) -> bool {
    len >= u64::from(conn.snd.wnd_max / 2)
}
