//! Selection of sockets by the expressions of `ss`.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use slipstack_terms::{SocketState, Transport};

use super::SocketRow;
use slipstack_network::contains;

/// Which end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    Local,
    Remote,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    fn holds(self, value: u16, than: u16) -> bool {
        match self {
            Comparison::Equal => value == than,
            Comparison::NotEqual => value != than,
            Comparison::Less => value < than,
            Comparison::LessOrEqual => value <= than,
            Comparison::Greater => value > than,
            Comparison::GreaterOrEqual => value >= than,
        }
    }
}

/// A condition on the ends of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expression {
    /// Every one of them; an empty list holds for all sockets.
    All(Vec<Expression>),
    /// At least one of them.
    Any(Vec<Expression>),
    Not(Box<Expression>),
    Port(Side, Comparison, u16),
    Network(Side, (IpAddr, u8)),
    /// Exactly this connection.
    Ends(SocketAddr, SocketAddr),
    /// Without traffic in either direction for this time, or in TIME-WAIT for it.
    IdleMs(u64),
}

impl Expression {
    pub const EVERYTHING: Expression = Expression::All(Vec::new());

    pub fn matches(&self, row: &SocketRow) -> bool {
        match self {
            Expression::All(all) => all.iter().all(|it| it.matches(row)),
            Expression::Any(any) => any.iter().any(|it| it.matches(row)),
            Expression::Not(not) => !not.matches(row),
            Expression::Port(side, comparison, port) => {
                let own = row.end(*side).map_or(0, |end| end.port());
                comparison.holds(own, *port)
            }
            Expression::Network(_, (net, 0)) if net.is_unspecified() => true,
            Expression::Network(side, net) => {
                row.end(*side).is_some_and(|end| contains(*net, end.ip()))
            }
            Expression::Ends(local, remote) => row.local == *local && row.remote == Some(*remote),
            Expression::IdleMs(least) => row.idle_ms.is_some_and(|idle| idle >= *least),
        }
    }
}

/// A selection of sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// A set of [`SocketState::bit`]s.
    pub states: u16,
    pub has_tcp: bool,
    pub has_udp: bool,
    pub has_v4: bool,
    pub has_v6: bool,
    pub expression: Expression,
}

impl Filter {
    /// Every state.
    pub const STATES_ALL: u16 = 0x0ffe;
    /// Linux's default: all connected sockets.
    pub const STATES_CONNECTED: u16 = Filter::STATES_ALL
        & !(SocketState::Listen.bit()
            | SocketState::Closed.bit()
            | SocketState::TimeWait.bit()
            | SocketState::SynReceived.bit());

    /// Everything there is in these states.
    pub const fn of_states(states: u16) -> Filter {
        Filter {
            states,
            has_tcp: true,
            has_udp: true,
            has_v4: true,
            has_v6: true,
            expression: Expression::EVERYTHING,
        }
    }

    pub fn matches(&self, row: &SocketRow) -> bool {
        let is_protocol = match row.protocol {
            Transport::Tcp => self.has_tcp,
            Transport::Udp => self.has_udp,
        };
        let is_family = if row.local.is_ipv4() {
            self.has_v4
        } else {
            self.has_v6
        };
        self.states & row.state.bit() != 0
            && is_protocol
            && is_family
            && self.expression.matches(row)
    }
}

impl SocketRow {
    fn end(&self, side: Side) -> Option<SocketAddr> {
        match side {
            Side::Local => Some(self.local),
            Side::Remote => self.remote,
        }
    }
}
