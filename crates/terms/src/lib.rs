//! Terms that programs, engines, stacks and the keeper share: protocols, errors, socket options,
//! counters.
//!
//! Each is declared once and used from the core up to the interposed calls. In shared memory they
//! are numbers ([`Words`]); a reader refuses a number that no program of this version writes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod carried;
mod chooser;
mod classic;
mod close;
mod coded;
mod congestion;
mod errors;
mod extended;
mod fast_open;
mod filter;
mod groups;
mod int;
mod keep_alive;
mod learnt;
mod mtu_discovery;
mod option;
mod ports;
mod route_refusal;
mod saved_syn;
mod settings;
mod state;
mod tcp_info;
mod transport;
mod vlan_tag;
mod words;

pub use carried::{Carried, CarriedRange, parse_ports, parse_protocol, protocol_text};
pub use chooser::{CHOOSER_MAX, ChooserPart};
pub use classic::{Beside, run_classic};
pub use close::CloseMode;
pub use congestion::Congestion;
pub use errors::{Reason, SocketError};
pub use extended::{Extended, MapReference, Seen, Surroundings, Verdict, is_supported_map};
pub use fast_open::{CookieKey, FastOpenKeys};
pub use filter::{FilterAction, FilterDirection, FilterKeep, FilterPart, LimitBy, UnreachCode};
pub use groups::{GroupChange, MulticastOption};
pub use keep_alive::KeepAlive;
pub use learnt::{Learnt, LearntAddress, LearntLink, LearntNetwork, Redirected};
pub use mtu_discovery::MtuDiscovery;
pub use option::{SocketOption, SocketOptions};
pub use ports::PortRange;
pub use route_refusal::RouteRefusal;
pub use saved_syn::SavedSyn;
pub use settings::{EcnMode, Listed, LogLevel, ShareAction, Spin, SpreadRule, XdpMode};
pub use state::SocketState;
pub use tcp_info::TcpInfo;
pub use transport::Transport;
pub use vlan_tag::{LinkTags, VlanTag};
pub use words::{WORDS, Words, ip_of, ip_words};
