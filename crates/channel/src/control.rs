//! Messages between programs, instances and the keeper over an AF_UNIX SOCK_SEQPACKET socket.
//!
//! Control messages are rare, so each one is a JSON object, with a version in the greeting;
//! descriptors travel beside it by SCM_RIGHTS, and the message names the role of each in order.
//! Every request has one reply, except [`Request::NewClient`], which has none: it is sent over a
//! connection that several processes share. The receiver treats a message as hostile: lengths,
//! counts and roles are checked here, values where they are used.

mod left_file;
mod report;
mod socket;
mod text;
mod time_wait;
mod viewer;

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

pub use slipstack_netctl as net;
use slipstack_netctl::NetworkState;
use slipstack_terms::Transport;

pub use left_file::{LeftFile, PassedOn, UNSENT_MAX, WantedLeft};
pub use report::{
    DeviceReport, EngineReport, InstanceReport, InterfaceReport, PortReport, ProgramReport,
    SocketReport, StatusReport, WhyReport,
};
pub use socket::{ControlError, ControlSocket, Peer, connect, listen, pair};
pub use text::{add_line, read_bytes, read_exactly, read_lines, read_text, text_file};
pub use time_wait::{TIME_WAITS_PER_MESSAGE, TimeWaitEntry};
pub use viewer::{Viewer, of_another_user};

/// Version of the messages and of all layouts they refer to. Both sides must have the same.
pub const CONTROL_VERSION: u32 = 27;
/// Longest message.
pub const MESSAGE_MAX: usize = 128 * 1024;
/// Most descriptors beside one message.
pub const DESCRIPTORS_MAX: usize = 200;
/// Characters of a request in a log, at most.
const SHOWN_MAX: usize = 200;

/// Introduces a process. First message on every connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub version: u32,
    /// Name of the program, for people.
    pub program: String,
    /// Drawn at random by a program image and inherited by the children it forks. A process that
    /// knows it may listen on the same ports.
    pub family: u64,
    /// Drawn and inherited in the same way. A process that knows it may go on with connections
    /// which this one has lent, if this one is killed. 0: nobody may.
    pub heirs: u64,
    /// Name of the instance, if this is one.
    pub instance: Option<String>,
    /// Proof that this process may use the device, from the [`Welcome`] of an ancestor. Needed only
    /// by unprivileged processes that connect by path.
    pub capability: Option<u64>,
    /// The client it was before the connection was lost.
    pub resume: Option<u64>,
    /// The connection will be inherited by children and lasts until the last of them closes it;
    /// only [`Request::NewClient`] follows on it.
    pub is_shared: bool,
}

/// A client's request to the keeper (and, where noted, to an instance).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    Hello(Hello),
    /// Carries one descriptor, the keeper's end of a new connection. No reply.
    NewClient,
    /// A slot of the device for an engine of this process.
    LeaseSlot {
        /// The kernel's id of the thread that drives it.
        thread: u32,
    },
    /// One more block of outgoing ports.
    LeasePorts,
    /// A block of outgoing ports of this range, inclusive, that are not among those of the pool.
    LeasePortsBeyond {
        range: (u16, u16),
    },
    ListenOn {
        protocol: Transport,
        address: IpAddr,
        port: u16,
        /// [::] does not take IPv4 in.
        is_v6_only: bool,
        is_reuse_port: bool,
        /// The link that the socket is bound to, its number plus one; 0 = any.
        link: u16,
    },
    ListenOff {
        protocol: Transport,
        address: IpAddr,
        port: u16,
        link: u16,
        /// The connection of the port has ended: segments that still come do not wait for one.
        #[serde(default)]
        is_over: bool,
    },
    /// A datagram socket of this client's engine is in the SO_REUSEPORT group of its address, or
    /// no longer so.
    JoinGroup {
        socket: GroupSocket,
        is_on: bool,
    },
    /// The program that chooses among the sockets of a group in which this client has one; none:
    /// their hash does again.
    Choose {
        local: SocketAddr,
        set_ms: u32,
        code: Vec<u8>,
    },
    /// Asks for the groups of a UDP port that have a program. The reply carries the maps that the
    /// programs refer to.
    Choosers {
        port: u16,
    },
    /// Connections to a port that this client listens on go to other clients first, or no longer
    /// so. Refused as [`Refusal::Unknown`] when there are none.
    ListenYield {
        protocol: Transport,
        port: u16,
        is_on: bool,
    },
    /// A datagram socket of this client is connected or disconnected: its flow, which the directory
    /// names, comes here, and other datagrams to the port go to other sockets first.
    SteerFlow {
        local: SocketAddr,
        remote: SocketAddr,
        is_on: bool,
    },
    /// A connection that the directory names has come to this client from another engine: it is
    /// steered here.
    BringFlow {
        local: SocketAddr,
        remote: SocketAddr,
    },
    /// A connection of a killed process, which this client may use too.
    /// The reply carries a file with it ([`LeftFile`]). Refused as [`Refusal::Busy`] if its owner
    /// lives, as far as the keeper knows.
    TakeLeft(WantedLeft),
    /// Carries one channel region of this process: its flow directory lists the flows to end after
    /// a crash, its handover area the connections to complete after an orderly end.
    RegisterRegion {
        id: u64,
    },
    /// Carries the region in which the process describes its sockets.
    RegisterReport,
    /// The connections in the handover area of a registered region are the keeper's now.
    Handover {
        id: u64,
        images: u32,
    },
    /// Former connections of an engine that ends, which are in TIME-WAIT; at most
    /// [`TIME_WAITS_PER_MESSAGE`]. Refused as [`Refusal::Exhausted`] when there is room for no
    /// more.
    TimeWaits {
        entries: Vec<TimeWaitEntry>,
    },
    /// Asks the keeper or an instance whether it has connections, or the TIME-WAIT of some, with
    /// this local port. Refused as [`Refusal::AddressInUse`] if so.
    FindPort {
        local: SocketAddr,
        is_v6_only: bool,
    },
    /// Orderly end: nothing is left, or all was handed over.
    EndSession,
    /// An engine waits for the link-layer address.
    Resolve {
        address: IpAddr,
    },
    /// Asks the keeper or an instance for the current network.
    Network,
    /// A call of the control protocol; see `net`.
    Net(net::Call),
    /// The packet filter, with the prefixes of tables whose revisions are not in `known`.
    Filter {
        known: Vec<u64>,
    },
    /// Matches of its rules that are to be logged; a sentence each.
    FilterLog {
        lines: Vec<String>,
    },
    /// Asks for the next question of an operator to this client's engine, after a notice.
    NextInquiry,
    /// Carries the file with the answer to it.
    AnswerInquiry {
        id: u64,
    },
    /// To an instance: a channel for this program.
    Attach {
        program: String,
        /// Bytes of the channel's region that the program has addresses for.
        region_len: usize,
    },
    Status,
    Why {
        pid: u32,
    },
    /// Ends the keeper, or the instance it is sent to.
    Stop {
        is_forced: bool,
    },
}

impl Request {
    /// Returns the request as a log shows it: cut after [`SHOWN_MAX`] characters, and a greeting
    /// without its secrets.
    pub fn shown(&self) -> String {
        match self {
            Request::Hello(hello) => format!("Hello {{ program: {:?} }}", hello.program),
            request => format!("{request:?}").chars().take(SHOWN_MAX).collect(),
        }
    }

    /// Returns whether every user may send it; how much is answered, and whether a call changes
    /// anything, depends on the [`Viewer`].
    #[must_use]
    pub fn is_open_to_all(&self) -> bool {
        matches!(
            self,
            Request::Status | Request::Why { .. } | Request::Network | Request::Net(_)
        )
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    Welcome(Box<Welcome>),
    Slot(Box<SlotLease>),
    /// Places in the pool's keyed order, inclusive; beyond the pool each place is its port.
    Ports {
        first: u16,
        last: u16,
    },
    Done,
    /// Link-layer address, if it is known already.
    Neighbour {
        mac: Option<[u8; 6]>,
    },
    Network(Box<NetworkState>),
    Net(Box<net::Answer>),
    Choosers(Vec<ChooserState>),
    /// Carries the file with the rules, and that with the prefixes.
    Filter(net::FilterHead),
    Inquiry {
        id: u64,
        inquiry: Box<net::Inquiry>,
    },
    Attached(Attached),
    Status(Box<StatusReport>),
    Why(Box<WhyReport>),
    Refused {
        refusal: Refusal,
        message: String,
    },
}

/// The program of a SO_REUSEPORT group, and the group's sockets in its order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChooserState {
    pub local: SocketAddr,
    pub code: Vec<u8>,
    pub members: Vec<ChooserMember>,
}

/// A socket of a SO_REUSEPORT group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSocket {
    pub local: SocketAddr,
    pub rank: u64,
    /// Cookie of its kernel part; 0 = it has none.
    pub cookie: u64,
}

/// A socket of a group and the slot of its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChooserMember {
    pub rank: u64,
    pub cookie: u64,
    pub slot: u16,
}

/// Reason why a request was refused. The message beside it is a sentence for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The other side has another version.
    Version,
    /// The request is not understood, or not allowed now.
    BadRequest,
    NotPermitted,
    /// A table, or the device's slots, are full.
    Exhausted,
    /// As [`Refusal::Exhausted`], which a process of the same family has been told lately.
    StillExhausted,
    AddressInUse,
    /// No such client, process or region.
    Unknown,
    /// Still in use.
    Busy,
    Failed,
}

/// The answer that every client gets when it attaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub client: u64,
    /// See [`Hello::capability`].
    pub capability: u64,
    pub keeper_pid: u32,
    pub interface: String,
    pub device: DeviceSummary,
    /// 802.1Q VLAN of the interface that is the device's own link; 0 = untagged.
    pub vlan: u16,
    pub network: NetworkState,
    /// Nobody else uses the stack: it may end for one that is wanted in its place.
    #[serde(default)]
    pub is_unused: bool,
}

/// The device's kind, for processes that do not open it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSummary {
    /// Kind as `--device` names it; variants are distinguished after a colon.
    pub kind: String,
    /// The word before its name in sentences: "interface".
    pub title: String,
    /// Reason why it is of this kind; a sentence for people.
    pub why: String,
    /// The words of `--device` by which it was opened, its file by an absolute path; `None`: the
    /// kind was chosen.
    #[serde(default)]
    pub asked: Option<String>,
    /// An interface of the kernel's is behind it.
    pub has_interface: bool,
    /// Whether packet sockets receive all its frames.
    #[serde(default)]
    pub is_heard: bool,
    /// The interface was made for the stack: its other side is this machine's kernel.
    pub is_own: bool,
    /// The switches with which it was opened.
    #[serde(default)]
    pub switches: Vec<Switch>,
    /// Engines that may run at a time.
    #[serde(default)]
    pub slots: u16,
    /// The rule by which new flows are spread over engines, in the words of its options.
    #[serde(default)]
    pub spread: String,
}

/// A switch of a device, which holds from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Switch {
    /// The stack cuts segments and datagrams itself.
    NoSegmentation,
    /// The stack computes checksums itself.
    NoChecksum,
    /// Frames to all stations are heard.
    Promiscuous,
    /// IPv6 addresses, router and MTU come from the link's routers.
    Autoconfigured,
    /// Packets for others are passed on.
    Forwarding,
}

/// Role of a descriptor beside a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Descriptor {
    /// A descriptor of the device's slot; several come in the back end's order.
    Device,
    /// A steering map; several come in the order of `device::Steering`.
    SteeringMap,
    /// Shared words of all slots (ring positions, heartbeats).
    Slots,
    /// Inboxes of all slots, by slot number.
    Inbox,
    /// Doorbell (eventfd) of an inbox, by slot number.
    InboxDoorbell,
    /// Table of neighbours.
    Neighbours,
    /// Tells a new keeper that an engine of a former one runs; to be kept as long as the engine.
    Claim,
    /// Channel region of an attached program.
    Channel,
    /// Eventfd that wakes the engine.
    EngineDoorbell,
    /// Eventfd that wakes the program.
    ProgramDoorbell,
}

/// A slot of a device, leased.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlotLease {
    pub slot: u16,
    pub slots: u16,
    pub mac: [u8; 6],
    pub mtu: u16,
    /// `device::SlotParams` as text.
    pub params: String,
    /// First blocks of outgoing ports, as places in the pool's keyed order.
    pub ports: (u16, u16),
    /// The pool that blocks are of, inclusive; the key of its order follows from `sequence_key`.
    pub port_pool: (u16, u16),
    /// Key of initial sequence numbers and timestamp offsets, for all engines of the device.
    pub sequence_key: [u64; 2],
    pub descriptors: Vec<Descriptor>,
}

/// A channel to an instance's engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    pub instance: String,
    pub instance_pid: u32,
    pub descriptors: Vec<Descriptor>,
}
