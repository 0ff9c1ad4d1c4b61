//! Lifetimes of neighbours' answers and intervals of requests. For IPv6 the routers of a link may
//! set them (RFC 4861 6.3.2).

use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use crate::config::NeighbourConfig;

/// Lifetime of a neighbour's answer, and the interval of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub reachable: Duration,
    pub retry: Duration,
}

/// The times that the routers of a link set; `None`: they leave one to the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToldTimes {
    /// The link's number.
    pub link: u16,
    pub reachable: Option<Duration>,
    pub retry: Option<Duration>,
}

/// Times of the links whose routers set some.
#[derive(Debug, Default)]
pub(super) struct LinkTimes(Vec<(u16, Times)>);

impl Times {
    fn of(config: &NeighbourConfig) -> Times {
        Times {
            reachable: config.reachable,
            retry: config.retry,
        }
    }
}

impl LinkTimes {
    pub fn follow(&mut self, links: &[ToldTimes], config: &NeighbourConfig) {
        let own = Times::of(config);
        let links = links.iter().map(|told| {
            let times = Times {
                reachable: told.reachable.unwrap_or(own.reachable),
                retry: told.retry.unwrap_or(own.retry),
            };
            (told.link, times)
        });
        self.0 = links.collect();
    }

    /// Returns the times of a neighbour on a link.
    pub fn find(&self, (ip, link): (IpAddr, u16), config: &NeighbourConfig) -> Times {
        let mut told = self.0.iter().filter(|_| ip.is_ipv6());
        let told = told.find(|(of, _)| *of == link);
        told.map_or_else(|| Times::of(config), |(_, times)| *times)
    }
}
