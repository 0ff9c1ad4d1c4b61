//! Queries and answers.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use slipstack_network::{Change, NetworkState};

use crate::filter::{FilterChange, FilterHead};
use crate::sockets::{EngineIdentity, Inquiry, ProgramIdentity};

/// Version of this protocol. A keeper refuses another one and names its own.
pub const VERSION: u32 = 6;

/// The envelope that distinguishes these messages from others on the same socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Envelope {
    Net(Call),
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Returned {
    Net(Box<Answer>),
    /// The keeper's general refusal: of an unauthorised client, or of an invalid message.
    Refused {
        message: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub version: u32,
    pub query: Query,
}

impl Call {
    pub fn new(query: Query) -> Call {
        Call {
            version: VERSION,
            query,
        }
    }
}

/// A question, or a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    Network,
    /// The neighbours that are known, with their link-layer addresses.
    Neighbours,
    /// Changes of the network, applied all or not at all.
    Set(Vec<Change>),
    /// The network now, and again after each change.
    Watch,
    /// An inquiry to every engine.
    Inquire(Inquiry),
    /// The packet filter, with the prefixes of tables whose revisions are not known; `None`: of no
    /// table.
    Filter {
        known: Option<Vec<u64>>,
    },
    /// Changes of the filter, applied all or not at all.
    SetFilter(Vec<FilterChange>),
    /// The programs that describe their sockets, from this place in the list on.
    Programs {
        from: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::large_enum_variant,
    reason = "answers are rare and live shortly"
)]
pub enum Answer {
    Network(NetworkState),
    Neighbours(Vec<(u16, IpAddr, [u8; 6])>),
    /// The changes hold; the revision with which they do.
    Changed {
        revision: u64,
    },
    /// The answers of engines, each in a file: their descriptors are beside the message, in order.
    Engines(Vec<EngineIdentity>),
    /// The rules, a [`crate::FilterRule`] as JSON in each line, are in the file whose descriptor is
    /// beside the message, the prefixes of tables in a second one.
    Filter(FilterHead),
    /// The rules hold, with these numbers for those that are new.
    FilterChanged(Vec<u32>),
    /// With the tables in which they do so beside the message, in order.
    Programs {
        programs: Vec<ProgramIdentity>,
        /// Further programs are left out.
        is_cut: bool,
    },
    Denied(Denied),
}

/// Reason why a call was refused: a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denied {
    pub why: String,
    /// Which of several changes it was.
    pub at: Option<usize>,
}
