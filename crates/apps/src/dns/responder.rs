//! One engine's answers: from a query's bytes to a response's.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::answer::{Kind, render};
use super::builder::Builder;
use super::chaos::Chaos;
use super::counts::{Book, Counts};
use super::edns::{self, Client, Identity, Reply};
use super::mailbox::{Mailbox, ZoneMessage};
use super::message::{self, Parsed, Query, TCP_MAX, rcode, refusal};
use super::name;
use super::rate::{Limiter, Rate, Verdict};
use super::ready::Ready;
use super::repeated::Repeated;
use super::store::Store;
use super::transfer::Outgoing;
use super::tsig::{Rejected, Session};
use super::types::{AXFR, CLASS_CHAOS, CLASS_IN, IXFR, SOA};
use super::zone::Zones;

/// State that the engines of a server share.
#[derive(Clone, Debug)]
pub struct Common {
    pub store: Arc<Store>,
    pub mailbox: Arc<Mailbox>,
    pub identity: Arc<Identity>,
    pub chaos: Arc<Chaos>,
    pub rate: Rate,
    pub book: Arc<Book>,
    /// Secret seed of the hashes: makes keys that collide hard to find.
    pub seed: u64,
}

/// Answers queries; keeps those that were given ready.
#[derive(Debug)]
pub struct Responder {
    common: Common,
    version: u64,
    zones: Arc<Zones>,
    ready: Ready,
    repeated: Repeated,
    out: Vec<u8>,
    transfer: Option<Box<Outgoing>>,
    limiter: Limiter,
    counts: Arc<Counts>,
    /// The last response was kept ready.
    is_ready: bool,
    /// Kind of the last response from a zone, and the length of the name it is about.
    about: (Kind, u8),
}

/// Source of a message, and its arrival in monotonic nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub ip: IpAddr,
    pub is_tcp: bool,
    pub now_ns: u64,
}

/// A message and where it comes from.
#[derive(Clone, Copy)]
struct Source<'a> {
    bytes: &'a [u8],
    ip: IpAddr,
    is_tcp: bool,
    now_ns: u64,
}

/// Seconds since 1970.
pub fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl Responder {
    pub fn new(common: Common) -> Responder {
        Responder {
            version: common.store.version(),
            zones: common.store.current(),
            ready: Ready::new(common.seed),
            repeated: Repeated::new(common.seed),
            out: Vec::with_capacity(message::UDP_MAX),
            transfer: None,
            limiter: Limiter::new(common.rate, common.seed),
            counts: common.book.open(),
            is_ready: false,
            about: (Kind::Error, 0),
            common,
        }
    }

    /// The zones in force.
    #[inline]
    pub fn zones(&mut self) -> &Arc<Zones> {
        let version = self.common.store.version();
        if version != self.version {
            self.version = version;
            self.zones = self.common.store.current();
            self.ready.clear();
            self.repeated.clear();
        }
        &self.zones
    }

    /// Answers a message; `None`: it gets no answer, or [`Responder::take_transfer`] has it.
    pub fn respond(&mut self, bytes: &[u8], arrival: Arrival) -> Option<&[u8]> {
        self.respond_unless(bytes, arrival, || false)
    }

    /// As [`Responder::respond`], but returns `None` also if the question is new and a worker
    /// answers it: `is_passed` passes it on, and returns whether it did.
    pub fn respond_unless(
        &mut self,
        bytes: &[u8],
        arrival: Arrival,
        is_passed: impl FnOnce() -> bool,
    ) -> Option<&[u8]> {
        self.out.clear();
        let Arrival { ip, is_tcp, now_ns } = arrival;
        if !is_tcp && self.repeat(bytes) {
            return Some(&self.out);
        }
        let source = Source {
            bytes,
            ip,
            is_tcp,
            now_ns,
        };
        match message::parse(bytes) {
            Parsed::Query(query) => {
                self.is_ready = false;
                if !self.answer(&query, source, is_passed) {
                    return None;
                }
                if self.is_ready && !is_tcp && is_plain(&query) {
                    self.repeated.note(bytes, &self.out, query.qtype);
                }
            }
            Parsed::Malformed(id, flags, code) => self.out = refusal(id, flags, code),
            Parsed::Notify(query) => self.note(&query, source),
            Parsed::Notified(id, name) => {
                let message = ZoneMessage::Heard(id, name::lower(name));
                self.common.mailbox.post(message);
                return None;
            }
            Parsed::Ignore => return None,
        }
        let transport = if is_tcp {
            &self.counts.tcp
        } else {
            &self.counts.udp
        };
        transport.add();
        self.counts.note_response(&self.out);
        Some(&self.out)
    }

    /// Answers a query that differs only in its id from one that was answered recently. Returns
    /// `false` if it is no such query.
    #[inline]
    fn repeat(&mut self, bytes: &[u8]) -> bool {
        self.zones();
        if self.limiter.is_on() {
            return false;
        }
        let Some(memo) = self.repeated.find(bytes) else {
            return false;
        };
        self.out.extend_from_slice(&bytes[..2]);
        self.out.extend_from_slice(memo.response);
        self.counts.note_query(memo.qtype);
        self.counts.udp.add();
        self.counts.note_response(&self.out);
        true
    }

    /// Returns the transfer that the last message requested.
    pub fn take_transfer(&mut self) -> Option<Box<Outgoing>> {
        self.transfer.take()
    }

    /// Answers a query; `false`: it was passed on, is a transfer, or gets no answer.
    #[inline]
    fn answer(
        &mut self,
        query: &Query<'_>,
        source: Source<'_>,
        is_passed: impl FnOnce() -> bool,
    ) -> bool {
        self.counts.note_query(query.qtype);
        if query.tsig_at.is_some() || matches!(query.qtype, AXFR | IXFR) {
            return self.answer_signed(query, source);
        }
        let max = match source.is_tcp {
            true => TCP_MAX,
            false => query.udp_max(),
        };
        self.answer_within(query, source, max, is_passed)
    }

    /// Answers a query that is signed, or requests a transfer; returns `false` if it is a transfer.
    fn answer_signed(&mut self, query: &Query<'_>, source: Source<'_>) -> bool {
        let mut session = match self.accept(query, source) {
            Ok(session) => session,
            Err(rejected) => {
                self.put_error(query, rcode::NOT_AUTHORITATIVE);
                rejected.put_record(&mut self.out, unix_now());
                return true;
            }
        };
        let is_transfer = matches!(query.qtype, AXFR | IXFR) && query.qclass == CLASS_IN;
        if is_transfer && let Some(is_answered) = self.transfer(query, source, &session) {
            return is_answered;
        }
        let max = if source.is_tcp {
            TCP_MAX
        } else {
            query.udp_max()
        };
        let reserve = session.as_ref().map_or(0, Session::record_len);
        self.answer_within(query, source, max - reserve, || false);
        if let Some(session) = &mut session {
            session.sign(&mut self.out, unix_now());
        }
        true
    }

    /// Verifies a query's signature, if it has one.
    fn accept(
        &mut self,
        query: &Query<'_>,
        source: Source<'_>,
    ) -> Result<Option<Session>, Box<Rejected>> {
        let keys = Arc::clone(&self.zones().keys);
        let accepted = query
            .tsig_at
            .map(|at| Session::accept(source.bytes, at, &keys, unix_now()));
        accepted.transpose()
    }

    /// Begins a transfer, if that is allowed: `Some(false)`. Over UDP the SOA record is the answer,
    /// which shows whether a transfer is worth a connection (RFC 1995 2): `Some(true)`.
    fn transfer(
        &mut self,
        query: &Query<'_>,
        source: Source<'_>,
        session: &Option<Session>,
    ) -> Option<bool> {
        if !source.is_tcp && query.qtype == AXFR {
            return None;
        }
        let served = self.zones.at(&name::lower(query.qname))?;
        let key = session
            .as_ref()
            .map(|session| session.key().name.as_slice());
        let zone = served.zone.as_ref()?;
        if !served.policy.may_transfer(source.ip, key) {
            return None;
        }
        let mut outgoing = Outgoing::new(Arc::clone(zone), query, session.clone());
        self.counts.transfers.add();
        if source.is_tcp {
            self.transfer = Some(Box::new(outgoing));
            return Some(false);
        }
        outgoing.end_after_soa();
        self.out = outgoing.next_message(unix_now())?;
        Some(true)
    }

    /// Answers a NOTIFY, and has the zone's serial number queried if it is from a primary.
    fn note(&mut self, query: &Query<'_>, source: Source<'_>) {
        let mut session = match self.accept(query, source) {
            Ok(session) => session,
            Err(rejected) => {
                self.put_error(query, rcode::NOT_AUTHORITATIVE);
                return rejected.put_record(&mut self.out, unix_now());
            }
        };
        let key = session
            .as_ref()
            .map(|session| session.key().name.as_slice());
        let apex = name::lower(query.qname);
        let is_soa = query.qtype == SOA && query.qclass == CLASS_IN;
        let code = match self.zones.at(&apex).filter(|_| is_soa) {
            None => rcode::NOT_AUTHORITATIVE,
            Some(served) if !served.policy.may_notify(source.ip, key) => rcode::REFUSED,
            Some(_) => rcode::NO_ERROR,
        };
        self.counts.notifies.add();
        if code == rcode::NO_ERROR {
            self.common.mailbox.post(ZoneMessage::Changed(apex));
        }
        let mut out = Builder::new(query, TCP_MAX);
        out.is_authoritative = code == rcode::NO_ERROR;
        out.rcode = code;
        self.out = out.finish();
        if let Some(session) = &mut session {
            session.sign(&mut self.out, unix_now());
        }
    }

    /// Answers a query in at most `max` bytes; `false`: it was passed on, or gets no answer.
    #[inline]
    fn answer_within(
        &mut self,
        query: &Query<'_>,
        source: Source<'_>,
        max: usize,
        is_passed: impl FnOnce() -> bool,
    ) -> bool {
        let Some(edns) = query.edns else {
            let is_answered = self.put_body(query, max, is_passed);
            return is_answered && (!self.limits(source) || self.is_sent(query, source));
        };
        let mut reply = Reply::default();
        if !edns.options.is_empty() {
            let client = Client {
                ip: source.ip,
                is_tcp: source.is_tcp,
                unix_now: unix_now(),
            };
            match Reply::read(&edns, &client, &self.common.identity) {
                Some(read) => reply = read,
                None => {
                    self.put_error(query, rcode::FORMAT);
                    return true;
                }
            }
        }
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
        if self.limits(source) && !reply.is_address_proven && !self.is_sent(query, source) {
            return false;
        }
        // RFC 3225 3: DO is copied to every answer.
        reply.put_record(&mut self.out, edns.is_dnssec_ok, high);
        true
    }

    #[inline]
    fn limits(&self, source: Source<'_>) -> bool {
        self.limiter.is_on() && !source.is_tcp
    }

    /// Returns whether the rate limit has the response sent; it may be made a truncated one.
    #[cold]
    fn is_sent(&mut self, query: &Query<'_>, source: Source<'_>) -> bool {
        let (kind, len) = self.about;
        let qname = name::lower(query.qname);
        let start = qname.len().saturating_sub(len.into());
        let now_ms = source.now_ns / 1_000_000;
        match self.limiter.judge(source.ip, kind, &qname[start..], now_ms) {
            Verdict::Send => true,
            Verdict::Truncate => {
                self.counts.slipped.add();
                let mut out = Builder::new(query, TCP_MAX);
                out.truncate();
                self.out = out.finish();
                true
            }
            Verdict::Drop => {
                self.counts.dropped.add();
                false
            }
        }
    }

    fn put_error(&mut self, query: &Query<'_>, code: u8) {
        let mut out = Builder::new(query, TCP_MAX);
        out.rcode = code;
        self.out = out.finish();
    }

    /// Puts the response without its OPT record, of at most `room` bytes. `false`: it was passed
    /// on.
    #[inline]
    fn put_body(
        &mut self,
        query: &Query<'_>,
        room: usize,
        is_passed: impl FnOnce() -> bool,
    ) -> bool {
        self.about = (Kind::Error, 0);
        if query.question.is_empty() {
            self.put_error(query, rcode::NO_ERROR);
            return true;
        }
        if query.qclass == CLASS_CHAOS {
            self.out = self.common.chaos.answer(query, room);
            return true;
        }
        self.zones();
        self.ready.look_for(query, room);
        if let Some(hit) = self.ready.find() {
            self.is_ready = true;
            self.about = (hit.kind, hit.source_len);
            self.out.extend_from_slice(hit.bytes);
            self.out[..2].copy_from_slice(&query.id.to_be_bytes());
            self.out[2] = self.out[2] & 0x86 | query.response_flags();
            let question = message::HEADER..message::HEADER + query.question.len();
            self.out[question].copy_from_slice(query.question);
            return true;
        }
        if self.ready.is_new() && is_passed() {
            return false;
        }
        let rendered = render(&self.zones, query, room);
        self.about = (rendered.kind, rendered.source_len);
        self.out.extend_from_slice(&rendered.bytes);
        if rendered.kind != Kind::Error {
            self.ready.keep(&rendered);
        }
        true
    }
}

/// Returns whether the response to a query depends on its bytes alone.
fn is_plain(query: &Query<'_>) -> bool {
    query.tsig_at.is_none() && query.edns.is_none_or(|edns| edns.options.is_empty())
}
