//! Network devices: how frames enter and leave the machine's user-space stacks.
//!
//! [`Device`] is one slot of a network device, driven by one engine. The kinds of devices are the
//! rows of `kinds.rs`: AF_XDP, TAP and AF_PACKET (the latter two with a virtio header and therefore
//! with checksum and segmentation offloads), memif, DPDK's ports, a device that discards
//! everything, and one that replays a capture. Beside them are an in-memory pair for tests
//! ([`loopback`]) and wrappers that write frames to a capture file ([`tee`]) or show them to the
//! program first ([`hooked`]).
//!
//! A device is opened in two steps. The keeper, privileged, opens all [`Slots`] once and never
//! closes one while the device is in use, because neither fan-out members nor TAP queues have a
//! stable identity: closing one renumbers the others. An engine, unprivileged, receives one slot's
//! [`SlotParts`] and adopts it with [`open_slot`]; a successor adopts it again where the last one
//! stopped. [`Steering`] decides which slot a frame goes to.
//!
//! A [`port`] is a whole interface without any of that, for programs that bridge frames; a
//! [`listener`] captures the frames that all slots of a device receive and send.

mod backend;
mod bpf;
mod capture;
mod completed;
mod device;
pub mod dpdk;
mod error;
pub mod ethtool;
pub mod hooked;
pub mod iface;
mod ingress;
mod joined;
mod kernel;
mod kinds;
pub mod listener;
pub mod loopback;
mod memif;
pub mod netlink;
mod notices;
mod null;
mod opened;
mod packet;
mod packets;
mod partial;
mod parts;
pub mod port;
mod position;
mod replay;
mod responder;
mod rss;
mod slots;
mod steering;
pub mod swap;
mod tags;
mod tap;
pub mod tee;
mod vnet;
mod xdp;

pub use backend::{
    Backend, Capabilities, Description, DeviceKind, NO_INTERFACE, Opened, PortSettings, TagSupport,
};
pub use bpf::maps::ProgramMap;
pub use capture::{Capture, Direction, SNAPLEN_MAX};
pub use completed::{transmit, tx_completed};
pub use device::{
    Device, DeviceCounters, DeviceInfo, LinkNotice, Rest, Sink, Takes, TxFull, datagram_cost,
};
pub use error::DeviceError;
pub use ingress::DropKind;
pub use kinds::{choose, find, usage};
pub use notices::{
    ListedAddress, ListedLink, ListedNeighbour, ListedRoute, Notice, Notices, RouteOrigin,
};
pub use packet::RingParams;
pub use parts::{LinkProperties, SlotParams, SlotParts};
pub use position::RingPosition;
pub use slipstack_terms::{LinkTags, Transport, VlanTag};
pub use slipstack_wire::{Gso, LinkId, PartialChecksum, RxChecksum, RxMeta, TxOffload};
pub use slots::{PORTS_MAX, Slots, open_slot, peek_slot};
pub use steering::{
    BUCKETS, EXCEPTIONS_MAX, Flow, GROUPS_MAX, Move, OWN_MAX, Port, ROWS_MAX, RecentFlows, Row,
    Rule, SLOTS_MAX, SlotSet, Steering, TRANSIT_GROUP,
};
