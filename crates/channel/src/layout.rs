//! Layout of a channel's region.
//!
//! ```text
//! header · events · commands · replies · cells · flow directory · half-open connections ·
//! TIME-WAIT entries · handover area · send arena (program allocates) · receive arena (engine
//! allocates)
//! ```
//! The region is sparse: untouched pages cost nothing but addresses. Its length says how long the
//! two arenas are: they share equally what is behind the other parts, in whole blocks of the
//! largest ring.

use core::ops::Range;

use slipstack_mem::{MpscInbox, RING_LOG2_MAX};

/// Changes with every change of a layout or encoding in this crate.
pub const LAYOUT_VERSION: u64 = 28;
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"slipchan");

/// Cells of the command ring; a writer that finds it full keeps the command in private memory.
pub const COMMANDS: usize = 4096;
/// Socket cells: the lower half the program hands out, the upper half the engine.
pub const SOCKETS: usize = 32_768;
pub(crate) const PROGRAM_SOCKETS: usize = SOCKETS / 2;
/// Each socket has at most one change or acceptance and one release outstanding.
pub(crate) const EVENTS: usize = 2 * SOCKETS;
/// Requests that wait for their reply at the same time.
pub(crate) const REPLIES: usize = 1024;
pub(crate) const REPLY_LINES: usize = 8;
pub(crate) const CELL_LINES: usize = 4;
/// Connections that a flow directory can name.
pub const FLOWS: usize = 65_536;
/// Half-open connections that have a record: as many as a stack has by default.
pub(crate) const HALF_OPEN: usize = 16_384;
/// TIME-WAIT entries that have a record, the latest ones if there are more.
pub(crate) const TIME_WAITS: usize = 8192;
pub(crate) const IMAGE_BYTES: usize = 1024;
/// Connections that a handover area takes.
pub const IMAGES: usize = SOCKETS;
/// Bytes of each arena, at most and at least.
const ARENA_BYTES: usize = 1 << 30;
const ARENA_BYTES_MIN: usize = 1 << RING_LOG2_MAX;

/// Rings of at least this size return their pages to the system when they are freed; smaller ones
/// stay warm for the next user.
pub(crate) const PUNCH_MIN: usize = 1 << 20;

const PAGE: usize = 4096;
const LINE: usize = 64;

/// Lines of the header page.
pub(crate) mod header {
    pub(crate) const CREATOR: usize = 0;
    /// The writer's and the reader's position of the event ring.
    pub(crate) const EVENT_POSITIONS: usize = 1;
    pub(crate) const ENGINE: usize = 3;
    pub(crate) const PROGRAM: usize = 4;
    /// Words of the engine's line.
    pub(crate) const ENGINE_SLEEPING: usize = 0;
    pub(crate) const ENGINE_GONE: usize = 1;
    /// The processor that the engine was seen on, plus one; 0 = not known.
    pub(crate) const ENGINE_CPU: usize = 2;
    /// Revision of the network that the engine uses.
    pub(crate) const ENGINE_NETWORK: usize = 3;
    /// Words of the program's line.
    pub(crate) const PROGRAM_SLEEPING: usize = 0;
    /// The processor of the program's thread that spun or slept last, plus one.
    pub(crate) const PROGRAM_CPU: usize = 1;
    /// The kernel's id of the program's thread that drives the engine; 0 = not known.
    pub(crate) const PROGRAM_THREAD: usize = 2;
}

pub(crate) const EVENTS_AT: usize = PAGE;
/// Offsets of the parts that a hostile program writes, for tests.
pub const COMMANDS_AT: usize = EVENTS_AT + EVENTS * 8;
pub(crate) const REPLIES_AT: usize = COMMANDS_AT + COMMANDS * LINE;
pub const CELLS_AT: usize = REPLIES_AT + REPLIES * REPLY_LINES * LINE;
pub(crate) const FLOWS_AT: usize = CELLS_AT + SOCKETS * CELL_LINES * LINE;
pub(crate) const HALF_OPEN_AT: usize = FLOWS_AT + PAGE + FLOWS * LINE;
pub(crate) const TIME_WAITS_AT: usize = HALF_OPEN_AT + PAGE + HALF_OPEN * LINE;
pub const IMAGES_AT: usize = TIME_WAITS_AT + PAGE + TIME_WAITS * LINE;
const ARENAS_AT: usize = (IMAGES_AT + PAGE + IMAGES * IMAGE_BYTES).next_multiple_of(1 << 21);

/// Length of a channel's region, and of the shortest one.
pub const REGION_BYTES: usize = ARENAS_AT + 2 * ARENA_BYTES;
pub const REGION_BYTES_MIN: usize = ARENAS_AT + 2 * ARENA_BYTES_MIN;

/// Share of a limited address space that a program gives to its channel.
const LIMIT_SHARE: u64 = 4;

/// The region's length for a program that may map `limit` bytes.
pub fn region_bytes_within(limit: u64) -> usize {
    usize::try_from(limit / LIMIT_SHARE)
        .unwrap_or(REGION_BYTES)
        .clamp(REGION_BYTES_MIN, REGION_BYTES)
}

/// The program's arena in a region of `region_len` bytes.
pub(crate) fn send_arena(region_len: usize) -> Range<usize> {
    ARENAS_AT..ARENAS_AT + arena_bytes(region_len)
}

/// The engine's arena.
pub(crate) fn receive_arena(region_len: usize) -> Range<usize> {
    let start = ARENAS_AT + arena_bytes(region_len);
    start..start + arena_bytes(region_len)
}

fn arena_bytes(region_len: usize) -> usize {
    (region_len.saturating_sub(ARENAS_AT) / 2) >> RING_LOG2_MAX << RING_LOG2_MAX
}

/// Cells of a slot's inbox for frames from other engines.
pub const INBOX_CELLS: usize = 512;
/// Bytes of a slot's inbox in the device's inbox region.
pub const INBOX_BYTES: usize = MpscInbox::bytes(INBOX_CELLS);
/// Longest region that is opened as a channel.
pub const REGION_LEN_MAX: usize = REGION_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_program_has_a_region_of_a_quarter_of_its_addresses() {
        let table = [
            (u64::MAX, REGION_BYTES),
            (1 << 34, REGION_BYTES),
            (1 << 30, 1 << 28),
            (400 << 20, 100 << 20),
            (1, REGION_BYTES_MIN),
        ];
        for (limit, len) in table {
            assert_eq!(region_bytes_within(limit), len, "{limit}");
        }
    }

    #[test]
    fn arenas_are_contiguous_and_within_their_region() {
        for (len, arena) in [
            (0, 0),
            (REGION_BYTES_MIN, ARENA_BYTES_MIN),
            (100 << 20, 24 << 20),
            (REGION_BYTES, ARENA_BYTES),
        ] {
            let (send, receive) = (send_arena(len), receive_arena(len));
            assert_eq!((send.len(), receive.len()), (arena, arena), "{len}");
            assert_eq!((send.start, send.end), (ARENAS_AT, receive.start));
            assert!(receive.end <= len || arena == 0);
        }
    }
}
