//! The channel between programs, engines and the keeper.
//!
//! A program and its engine share one [`Region`](slipstack_mem::Region) per pair: rings of commands
//! and events, a cell per socket and a byte ring per socket and direction. The program's side is
//! [`ProgramEnd`] (many threads), the engine's is [`EngineEnd`] (one). To the engine, everything
//! that the program writes is hostile: it is read once, checked, and the copy is used. [`Driver`]
//! hides which placement is used, [`Attach`] gets an engine, and [`control`] has the rare messages
//! over a unix socket.

mod addr;
mod attach;
mod cell;
mod charges;
mod command;
pub mod control;
mod datagram;
mod driver;
mod engine_end;
mod event;
mod extents;
mod flows;
mod half_open;
mod handover;
mod heuristics;
mod ids;
mod inbox;
mod layout;
mod lazy_box;
mod left;
mod loan;
mod nets;
mod outgoing;
mod owner;
mod passing;
mod policy;
mod program;
mod receive_ring;
mod reply;
pub mod report;
mod retired;
mod returned;
mod send_side;
mod shrink;
mod state;
mod time_waits;
mod urgent;

pub use addr::Ends;
pub use attach::{Attach, AttachError, EngineHandle, LeftBehind};
pub use cell::Limits;
pub use charges::{Charges, charge_of, has_room};
pub use command::{Coded, Command, Everyday, Ticket};
pub use control::PassedOn;
pub use datagram::{ENVELOPE_LEN, Envelope};
pub use driver::{Closed, Driver, OnUnused, Placement, TurnOutcome, WaitOn};
pub use engine_end::{Contradiction, EngineEnd};
pub use event::{ChannelEvent, EventKind};
pub use flows::{FlowDirectory, FlowEntry, Opened, flows};
pub use half_open::{HalfOpenRecords, half_open_records};
pub use handover::{HandoverArea, HandoverImage, STACK_IMAGE_MAX, handover_images};
pub use heuristics::{Heuristics, Rule};
pub use ids::SockId;
pub use inbox::{INBOX_STRAY_LEN, InboxError, InboxMessage, SlotGroup};
pub use layout::{
    CELLS_AT, COMMANDS_AT, FLOWS, IMAGES, IMAGES_AT, INBOX_BYTES, INBOX_CELLS, LAYOUT_VERSION,
    REGION_BYTES, REGION_BYTES_MIN, REGION_LEN_MAX, SOCKETS, region_bytes_within,
};
pub use lazy_box::LazyBox;
pub use left::LeftConnection;
pub use loan::Loan;
pub use outgoing::{Outgoing, OutgoingDatagram};
pub use owner::{Arrived, Inside, Owner};
pub use passing::{HOPS_MAX, PASSED_CHUNK, Passed, PassingHead};
pub use policy::{Asker, Policy};
pub use program::{
    CARVED_MAX, Carved, Datagram, DatagramEnd, DatagramInPlace, Frozen, Full, Given, KEPT_MAX,
    KeepError, ProgramEnd, Receiving, Segment, Unsent, driving_thread,
};
pub use receive_ring::ReceiveRing;
pub use reply::Reply;
pub use returned::{Returned, ReturnedRing};
pub use send_side::{SendSide, Sent};
pub use slipstack_terms::{
    CHOOSER_MAX, ChooserPart, CloseMode, Congestion, Extended, FastOpenKeys, GroupChange,
    KeepAlive, LogLevel, MapReference, MtuDiscovery, MulticastOption, PortRange, Reason, SavedSyn,
    SocketError, SocketOption, SocketOptions, SocketState, Spin, TcpInfo, Transport,
    is_supported_map, run_classic,
};
pub use state::State;
pub use time_waits::{TimeWaitRecords, time_wait_records};
pub use urgent::{Urgent, UrgentAhead, UrgentWord};
