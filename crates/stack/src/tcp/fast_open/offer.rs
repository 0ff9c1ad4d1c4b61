//! A server's decision about a SYN (RFC 7413 4.2.2).

use slipstack_wire::fast_open::FastOpen;

use super::keys::{Check, CookieKeys};
use crate::config::FastOpenConfig;
use crate::counters::Counter;
use crate::network_layer::Cx;
use crate::tcp::flow::FlowKey;
use crate::tcp::segment::Segment;
use crate::time::Instant;

/// The server's decision about a SYN with respect to Fast Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Nothing of it.
    Plain,
    /// The SYN-ACK carries a cookie.
    Answer,
    /// Its data is taken at once.
    Accept,
}

impl CookieKeys {
    /// RFC 7413 4.2.2: data is accepted only with a valid cookie; a request, and a wrong or ageing
    /// cookie, get a new one.
    pub fn offer(
        &mut self,
        now: Instant,
        key: &FlowKey,
        segment: &Segment<'_>,
        cx: &mut Cx<'_>,
    ) -> Offer {
        let FastOpenConfig {
            server,
            server_without_cookie,
            ..
        } = cx.config.tcp.fast_open;
        if !server {
            return Offer::Plain;
        }
        let has_data = !segment.payload.is_empty();
        match segment.fast_open() {
            _ if server_without_cookie && has_data => Offer::Accept,
            None => Offer::Plain,
            Some(FastOpen::Request) => Offer::Answer,
            Some(FastOpen::Cookie(cookie)) => match self.check(now, key, &cookie, cx.rng) {
                Check::Good | Check::Ageing if has_data => Offer::Accept,
                Check::Good => Offer::Plain,
                Check::Ageing => Offer::Answer,
                Check::Bad => {
                    cx.counters.bump(Counter::RxTcpBadFastOpen);
                    Offer::Answer
                }
            },
        }
    }
}
