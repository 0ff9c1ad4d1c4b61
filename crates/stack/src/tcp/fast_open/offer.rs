//! A server's decision about a SYN (RFC 7413 4.2.2).

use slipstack_wire::fast_open::{Cookie, FastOpen};

use super::keys::{Check, CookieKeys, OwnCookie, ProgramKeys};
use crate::config::FastOpenConfig;
use crate::counters::Counter;
use crate::network_layer::Cx;
use crate::options::SocketOptions;
use crate::tcp::flow::FlowKey;
use crate::tcp::segment::Segment;
use crate::time::Instant;

/// The server's decision about a SYN with respect to Fast Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Nothing of it.
    Plain,
    /// The SYN-ACK carries this cookie.
    Answer(OwnCookie),
    /// Data of the SYN is taken at once.
    Accept,
}

/// Settings of a listener's program for Fast Open.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    needs_no_cookie: bool,
    keys: Option<ProgramKeys>,
}

impl Terms {
    /// Returns none if the listener does without Fast Open.
    #[inline]
    pub fn of(options: &SocketOptions) -> Option<Terms> {
        (options.fast_open_queue > 0).then(|| Terms {
            needs_no_cookie: options.fast_open_no_cookie,
            keys: options.fast_open_keys.map(ProgramKeys::of),
        })
    }
}

impl CookieKeys {
    /// RFC 7413 4.2.2: data is accepted only with a valid cookie; a request, and a wrong or ageing
    /// cookie, get a new one.
    #[cold]
    pub fn offer(
        &mut self,
        now: Instant,
        key: &FlowKey,
        segment: &Segment<'_>,
        terms: &Terms,
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
            _ if (server_without_cookie || terms.needs_no_cookie) && has_data => Offer::Accept,
            None => Offer::Plain,
            Some(FastOpen::Request) => Offer::Answer(self.cookie_by(now, key, terms, cx)),
            Some(FastOpen::Cookie(cookie)) => match self.check_by(now, key, &cookie, terms, cx) {
                Check::Good | Check::Ageing if has_data => Offer::Accept,
                Check::Good => Offer::Plain,
                Check::Ageing => Offer::Answer(self.cookie_by(now, key, terms, cx)),
                Check::Bad => {
                    cx.counters.bump(Counter::RxTcpBadFastOpen);
                    Offer::Answer(self.cookie_by(now, key, terms, cx))
                }
            },
        }
    }

    fn cookie_by(
        &mut self,
        now: Instant,
        key: &FlowKey,
        terms: &Terms,
        cx: &mut Cx<'_>,
    ) -> OwnCookie {
        match &terms.keys {
            Some(keys) => keys.cookie(key),
            None => self.cookie(now, key, cx.rng),
        }
    }

    fn check_by(
        &mut self,
        now: Instant,
        key: &FlowKey,
        cookie: &Cookie,
        terms: &Terms,
        cx: &mut Cx<'_>,
    ) -> Check {
        match &terms.keys {
            Some(keys) => keys.check(key, cookie),
            None => self.check(now, key, cookie, cx.rng),
        }
    }
}
