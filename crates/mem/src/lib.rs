//! Memory that processes share, and the structures built on it.
//!
//! [`Region`] is a sealed memory file mapped into this process; everything else is a view of one:
//! atomic words and [`Line`]s, [`RawSlice`]s for bulk bytes, the [`CommandRing`] (many producers of
//! one process, one consumer), the [`EventRing`] (one producer, one consumer), the [`MpscInbox`]
//! (many processes, one consumer) and [`ByteRing`]s cut from an [`Arena`].
//!
//! Between threads of one process there are [`packet_ring`]s, and a [`Sleeper`] that is woken when
//! they hold something.
//!
//! Shared memory holds offsets, never pointers. A word that another process may write is read once,
//! checked, and the copy is used. All `unsafe` of sharing is in `raw.rs`.

mod arena;
mod bytering;
mod clock;
mod command_ring;
mod descriptor;
mod doorbell;
mod event_ring;
mod futex;
mod inbox;
mod lock;
mod packet_ring;
pub mod process;
mod raw;
mod region;
mod sleeper;
mod sync;
pub mod thread;
mod trace;

pub use arena::Arena;
pub use bytering::{ByteRing, RING_LOG2_MAX, RING_LOG2_MIN, RingWord};
pub use clock::{monotonic_ns_at, now_ns, wall_ns_at};
pub use command_ring::{CommandReader, CommandRing, PAYLOAD_WORDS};
pub use descriptor::{
    Descriptor, OURS_USUALLY_FROM, PrivateFd, is_parents, is_private, leave_to_parent, parents,
    privates, raised, raised_copy,
};
pub use doorbell::Doorbell;
pub use event_ring::{EventReader, EventWriter, Overrun};
pub use futex::{WaitOutcome, futex_wait, futex_wake};
pub use inbox::{InboxReader, MpscInbox};
pub use lock::{Guard, Lock};
pub use packet_ring::{PACKET_MAX, PacketReceiver, PacketSender, packet_ring};
pub use raw::{Line, RawSlice, RawSpace};
pub use region::{Lines, PAGE, Region, WipedPage};
pub use sleeper::Sleeper;
pub use trace::{Happened, Trace};
