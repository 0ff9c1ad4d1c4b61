//! The control protocol of a running stack: its network ([`NetworkState`]), changes of it
//! ([`Change`]), and the messages for both.
//!
//! A client connects to the keeper's control socket (AF_UNIX, SOCK_SEQPACKET) and sends
//! [`Envelope::Net`] with a [`Call`]; each call has one [`Answer`], after [`Query::Watch`] another
//! for each change. A message is one JSON object, in a packet or, if it is long, beside one: see
//! [`large`]. The keeper decides from the credentials of a connection whether its peer may change
//! anything.

mod client;
mod filter;
pub mod large;
mod message;
mod sockets;

pub use client::{Client, ClientError};
pub use filter::{
    FILTER_PREFIXES_MAX, FILTER_RULES_MAX, FILTER_SET_MAX, FILTER_TABLES_MAX, FilterChange,
    FilterEnd, FilterError, FilterFault, FilterHead, FilterReceived, FilterRule, FilterState,
    FilterTable, FilterTerm, FilterTest, FilterWanted, ReceivedTable, TableChange, TableEntry,
    TableHead, change_filter,
};
pub use message::{Answer, Call, Denied, Envelope, Query, Returned, VERSION};
pub use slipstack_network::{
    Change, ChangeError, Interface, KernelShare, Listed, MAIN_TABLE, Mode, NeighbourEntry,
    NetworkState, Refused, RouteEntry, RouteKey, RuleAction, RuleEntry, RuleInput, RuleQuery,
    ShareAction,
};
pub use slipstack_terms::{
    Carried, CarriedRange, FilterAction, FilterDirection, FilterKeep, FilterPart, Learnt, LimitBy,
    RouteRefusal, UnreachCode, VlanTag, parse_ports, parse_protocol, protocol_text,
};
pub use slipstack_wire::{LinkId, zone};
pub use sockets::{
    Comparison, EndedRow, EngineIdentity, Expression, Figures, Filter, FilterCountRow,
    FilterStateRow, Inquiry, ProgramIdentity, Side, SocketRow, SyntaxError, parse_filter,
};
