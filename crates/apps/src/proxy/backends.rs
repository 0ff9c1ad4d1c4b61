//! Choice of the next backend: among those that answer, in turn or by load.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use slipstack_service::ConnectionId;

/// Time for which a backend that refused is passed over where nothing checks it.
const REST_NS: u64 = 2_000_000_000;
/// Most backends of one proxy: the size of a set of them.
pub const BACKENDS_MAX: usize = 64;

/// Choice of the next backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    #[default]
    RoundRobin,
    /// The one with the fewest connections that are in use.
    LeastConnections,
}

impl FromStr for Balance {
    type Err = String;

    fn from_str(text: &str) -> Result<Balance, String> {
        match text {
            "round-robin" => Ok(Balance::RoundRobin),
            "least-connections" => Ok(Balance::LeastConnections),
            _ => Err("round-robin or least-connections".to_owned()),
        }
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Balance::RoundRobin => "round-robin",
            Balance::LeastConnections => "least-connections",
        })
    }
}

/// A set of backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried(u64);

impl Tried {
    pub fn with(self, backend: usize) -> Tried {
        Tried(self.0 | 1 << backend)
    }

    fn contains(self, backend: usize) -> bool {
        self.0 & 1 << backend != 0
    }
}

#[derive(Debug)]
struct Backend {
    addr: SocketAddr,
    /// Time until which the backend is passed over.
    rests_until_ns: u64,
    /// Connections in use, and attempts.
    active: usize,
    /// Connections that wait for the next request; the last one is the warmest.
    idle: Vec<ConnectionId>,
}

/// The backends of one engine.
#[derive(Debug)]
pub struct Backends {
    list: Vec<Backend>,
    balance: Balance,
    next: usize,
    /// A check decides when a backend is usable again.
    is_checked: bool,
}

impl Backends {
    pub fn new(addrs: &[SocketAddr], balance: Balance, is_checked: bool) -> Backends {
        let backend = |addr: &SocketAddr| Backend {
            addr: *addr,
            rests_until_ns: 0,
            active: 0,
            idle: Vec::new(),
        };
        Backends {
            list: addrs.iter().take(BACKENDS_MAX).map(backend).collect(),
            balance,
            next: 0,
            is_checked,
        }
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn addr(&self, backend: usize) -> SocketAddr {
        self.list[backend].addr
    }

    /// Chooses a backend that has not been tried. One that rests is chosen if there is no other.
    pub fn pick(&mut self, tried: Tried, now_ns: u64) -> Option<usize> {
        let count = self.list.len();
        let order = (0..count).map(|step| (self.next + step) % count);
        let mut left: Vec<usize> = order.filter(|it| !tried.contains(*it)).collect();
        let is_well = |it: &usize| self.list[*it].rests_until_ns <= now_ns;
        if left.iter().any(is_well) {
            left.retain(is_well);
        }
        let chosen = match self.balance {
            Balance::RoundRobin => left.first().copied(),
            Balance::LeastConnections => left.into_iter().min_by_key(|it| self.list[*it].active),
        }?;
        self.next = (chosen + 1) % count;
        Some(chosen)
    }

    pub fn begin(&mut self, backend: usize) {
        self.list[backend].active += 1;
    }

    pub fn end(&mut self, backend: usize) {
        debug_assert!(self.list[backend].active > 0);
        self.list[backend].active = self.list[backend].active.saturating_sub(1);
    }

    pub fn set_well(&mut self, backend: usize) {
        self.list[backend].rests_until_ns = 0;
    }

    pub fn set_ill(&mut self, backend: usize, now_ns: u64) {
        self.list[backend].rests_until_ns = match self.is_checked {
            true => u64::MAX,
            false => now_ns + REST_NS,
        };
    }

    pub fn take_idle(&mut self, backend: usize) -> Option<ConnectionId> {
        self.list[backend].idle.pop()
    }

    /// Keeps a connection for the next request; `false`: there are as many as `max`.
    pub fn keep_idle(&mut self, backend: usize, id: ConnectionId, max: usize) -> bool {
        let idle = &mut self.list[backend].idle;
        if idle.len() >= max {
            return false;
        }
        idle.push(id);
        true
    }

    pub fn forget_idle(&mut self, backend: usize, id: ConnectionId) {
        self.list[backend].idle.retain(|it| *it != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three(balance: Balance) -> Backends {
        let addr = |port| SocketAddr::from(([10, 0, 0, 1], port));
        Backends::new(&[addr(1), addr(2), addr(3)], balance, true)
    }

    #[test]
    fn requests_rotate_over_the_healthy_backends() {
        let mut backends = three(Balance::RoundRobin);
        let mut pick = || backends.pick(Tried::default(), 0).unwrap();
        assert_eq!([pick(), pick(), pick(), pick()], [0, 1, 2, 0]);
        backends.set_ill(1, 0);
        assert_eq!(backends.pick(Tried::default(), 0), Some(2));
        assert_eq!(backends.pick(Tried::default(), 0), Some(0));
        assert_eq!(backends.pick(Tried::default(), 0), Some(2));
        let others = Tried::default().with(0).with(2);
        assert_eq!(backends.pick(others, 0), Some(1), "there is no other");
        assert_eq!(backends.pick(others.with(1), 0), None);
    }

    #[test]
    fn the_least_loaded_backend_is_next() {
        let mut backends = three(Balance::LeastConnections);
        backends.begin(0);
        backends.begin(1);
        assert_eq!(backends.pick(Tried::default(), 0), Some(2));
        backends.begin(2);
        backends.begin(2);
        backends.end(1);
        assert_eq!(backends.pick(Tried::default(), 0), Some(1));
    }
}
