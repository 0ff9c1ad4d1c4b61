//! Connections that have ended, for an operator who watches. Without one nothing is kept.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::SocketAddr;

use slipstack_terms::TcpInfo;

use super::connection::Connection;
use super::info;
use crate::config::TcpConfig;
use crate::time::Instant;

/// Connections kept for watchers; of more the oldest are forgotten.
const KEPT_MAX: usize = 1024;

/// A connection as it was when it ended.
#[derive(Clone, Debug)]
pub struct EndedConnection {
    /// Counts those that ended while somebody watched; a gap are forgotten ones.
    pub number: u64,
    pub at: Instant,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub info: TcpInfo,
}

/// The last connections that ended.
#[derive(Debug, Default)]
pub struct Ended {
    number: u64,
    kept: Option<Box<Kept>>,
}

#[derive(Debug)]
struct Kept {
    until: Instant,
    connections: VecDeque<EndedConnection>,
}

impl Ended {
    /// Keeps connections that end before this time.
    pub fn watch(&mut self, until: Instant) {
        match &mut self.kept {
            Some(kept) => kept.until = kept.until.max(until),
            None => {
                self.kept = Some(Box::new(Kept {
                    until,
                    connections: VecDeque::new(),
                }));
            }
        }
    }

    #[inline]
    pub fn is_watched(&self) -> bool {
        self.kept.is_some()
    }

    #[cold]
    pub fn note(&mut self, now: Instant, conn: &Connection, config: &TcpConfig) {
        let Some(kept) = self.kept.as_mut().filter(|kept| now <= kept.until) else {
            self.kept = None;
            return;
        };
        self.number += 1;
        if kept.connections.len() >= KEPT_MAX {
            kept.connections.pop_front();
        }
        kept.connections.push_back(EndedConnection {
            number: self.number,
            at: now,
            local: conn.key.local(),
            remote: conn.key.remote(),
            info: info::of(conn, now, config),
        });
    }

    /// Connections that ended at this time or later, in order.
    pub fn since(&self, at: Instant) -> impl Iterator<Item = &EndedConnection> {
        let kept = self.kept.iter().flat_map(|kept| &kept.connections);
        kept.filter(move |it| it.at >= at)
    }
}
