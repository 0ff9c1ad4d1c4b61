//! One engine's answers: from a query's bytes to a response's.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::answer::{Kind, render};
use super::builder::Builder;
use super::chaos::Chaos;
use super::edns::{self, Client, Identity, Reply};
use super::message::{self, Parsed, Query, TCP_MAX, rcode, refusal};
use super::ready::Ready;
use super::store::Store;
use super::types::{AXFR, CLASS_CHAOS, IXFR};
use super::zone::Zones;

/// Answers queries; keeps those that were given ready.
#[derive(Debug)]
pub struct Responder {
    store: Arc<Store>,
    version: u64,
    zones: Arc<Zones>,
    identity: Arc<Identity>,
    chaos: Arc<Chaos>,
    ready: Ready,
    out: Vec<u8>,
}

/// Seconds since 1970.
pub fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl Responder {
    /// `seed`: of the table of kept answers; not to be known outside.
    pub fn new(
        store: Arc<Store>,
        identity: Arc<Identity>,
        chaos: Arc<Chaos>,
        seed: u64,
    ) -> Responder {
        Responder {
            version: store.version(),
            zones: store.current(),
            store,
            identity,
            chaos,
            ready: Ready::new(seed),
            out: Vec::with_capacity(message::UDP_MAX),
        }
    }

    /// The zones in force.
    #[inline]
    pub fn zones(&mut self) -> &Arc<Zones> {
        let version = self.store.version();
        if version != self.version {
            self.version = version;
            self.zones = self.store.current();
            self.ready.clear();
        }
        &self.zones
    }

    /// Answers a message; `None`: it gets no answer.
    pub fn respond(&mut self, bytes: &[u8], ip: IpAddr, is_tcp: bool) -> Option<&[u8]> {
        self.respond_unless(bytes, ip, is_tcp, || false)
    }

    /// As [`Responder::respond`], but `None` also if the question is a new one and somebody else
    /// answers it: `is_passed` passes it on, and returns whether it did.
    pub fn respond_unless(
        &mut self,
        bytes: &[u8],
        ip: IpAddr,
        is_tcp: bool,
        is_passed: impl FnOnce() -> bool,
    ) -> Option<&[u8]> {
        match message::parse(bytes) {
            Parsed::Query(query) => {
                if !self.answer(&query, ip, is_tcp, is_passed) {
                    return None;
                }
            }
            Parsed::Malformed(id, flags, code) => self.out = refusal(id, flags, code),
            Parsed::Notify(query) => {
                self.out = refusal(query.id, query.flags, rcode::NOT_IMPLEMENTED);
            }
            Parsed::Notified(..) | Parsed::Ignore => return None,
        }
        Some(&self.out)
    }

    /// Answers a query; `false`: it was passed on.
    fn answer(
        &mut self,
        query: &Query<'_>,
        ip: IpAddr,
        is_tcp: bool,
        is_passed: impl FnOnce() -> bool,
    ) -> bool {
        self.out.clear();
        let max = if is_tcp { TCP_MAX } else { query.udp_max() };
        let Some(edns) = query.edns else {
            return self.put_body(query, max, is_passed);
        };
        let mut reply = if edns.options.is_empty() {
            Reply::default()
        } else {
            let client = Client {
                ip,
                is_tcp,
                unix_now: unix_now(),
            };
            match Reply::read(&edns, &client, &self.identity) {
                Some(reply) => reply,
                None => {
                    self.put_error(query, rcode::FORMAT);
                    return true;
                }
            }
        };
        let high = if edns.version == 0 {
            if !self.put_body(query, max - reply.len(), is_passed) {
                return false;
            }
            let is_refused = self.out[3] & 15 == rcode::REFUSED;
            if is_refused && query.qclass != CLASS_CHAOS && !matches!(query.qtype, AXFR | IXFR) {
                reply.explain(edns::NOT_AUTHORITATIVE);
            }
            0
        } else {
            self.put_error(query, rcode::NO_ERROR);
            rcode::BAD_VERSION_HIGH
        };
        // RFC 3225 3: DO is copied, whatever the answer.
        reply.put_record(&mut self.out, edns.is_dnssec_ok, high);
        true
    }

    fn put_error(&mut self, query: &Query<'_>, code: u8) {
        let mut out = Builder::new(query, TCP_MAX);
        out.rcode = code;
        self.out = out.finish();
    }

    /// Puts the response without its OPT record, of at most `room` bytes. `false`: it was passed
    /// on.
    fn put_body(
        &mut self,
        query: &Query<'_>,
        room: usize,
        is_passed: impl FnOnce() -> bool,
    ) -> bool {
        if query.question.is_empty() {
            self.put_error(query, rcode::NO_ERROR);
            return true;
        }
        if query.qclass == CLASS_CHAOS {
            self.out = self.chaos.answer(query, room);
            return true;
        }
        self.zones();
        let key = self.ready.key(query, room);
        if let Some(hit) = self.ready.find(&key) {
            self.out.extend_from_slice(hit.bytes);
            self.out[..2].copy_from_slice(&query.id.to_be_bytes());
            self.out[2] = self.out[2] & 0x86 | query.response_flags();
            let question = message::HEADER..message::HEADER + query.question.len();
            self.out[question].copy_from_slice(query.question);
            return true;
        }
        if self.ready.is_new(&key) && is_passed() {
            return false;
        }
        let rendered = render(&self.zones, query, room);
        self.out.extend_from_slice(&rendered.bytes);
        if rendered.kind != Kind::Error {
            self.ready.keep(&key, &rendered);
        }
        true
    }
}
