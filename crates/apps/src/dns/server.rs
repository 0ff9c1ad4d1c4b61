//! The service: datagrams answered in the turn in which they come, and TCP (RFC 7766).

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use slipstack_service::{
    Answerer, ConnectionId, Context, Datagram, DatagramSocketId, Service, Via,
};

use super::answer::answer;
use super::message::{self, Parsed, Query, refusal};
use super::zone::Zones;

/// Answers that each engine keeps ready.
const READY_MAX: usize = 65_536;
/// Questions that an engine which passes on new ones has seen, by fingerprint.
const SEEN: usize = 8192;
/// Longest message over TCP.
const TCP_MAX: usize = 65_535;

/// Options of the name server.
#[derive(Clone, Debug)]
pub struct DnsOptions {
    pub listen: Vec<SocketAddr>,
    pub backlog: u32,
    pub zones: Arc<Zones>,
    /// A TCP connection on which nothing comes for so long is closed.
    pub idle: Duration,
}

/// See the module.
pub struct Dns {
    options: DnsOptions,
    /// Answers over UDP by question in lower case, room, and what they say of EDNS. They are sent
    /// with the query's id and question.
    ready: HashMap<Box<[u8]>, Box<[u8]>>,
    key: Vec<u8>,
    out: Vec<u8>,
    /// See [`Dns::is_new`].
    seen: Box<[u32]>,
}

impl Dns {
    pub fn new(options: DnsOptions) -> Dns {
        Dns {
            options,
            ready: HashMap::new(),
            key: Vec::new(),
            out: Vec::new(),
            seen: Box::default(),
        }
    }

    /// Returns the answer to a datagram; `None`: it gets none.
    pub fn answer_datagram(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        self.answer_unless(bytes, |_| false)
    }

    /// As [`Dns::answer_datagram`], but `None` also if the answer has to be made and somebody else
    /// does it.
    fn answer_unless(
        &mut self,
        bytes: &[u8],
        is_passed: impl FnOnce(&mut Dns) -> bool,
    ) -> Option<&[u8]> {
        match message::parse(bytes) {
            Parsed::Ignore => return None,
            Parsed::Malformed(id, code) => self.out = refusal(id, code),
            Parsed::Query(query) => {
                self.set_key(&query);
                if !self.find_ready(&query) {
                    if is_passed(self) {
                        return None;
                    }
                    self.make_ready(&query);
                }
            }
        }
        Some(&self.out)
    }

    fn set_key(&mut self, query: &Query<'_>) {
        self.key.clear();
        self.key
            .extend(query.question.iter().map(u8::to_ascii_lowercase));
        self.key.extend((query.udp_max() as u16).to_be_bytes());
        let edns = query.edns.map_or([0, 0], |edns| {
            [1 + u8::from(edns.is_dnssec_ok), edns.version]
        });
        self.key.extend(edns);
    }

    /// Puts the answer into `out` if it is ready.
    fn find_ready(&mut self, query: &Query<'_>) -> bool {
        let Some(ready) = self.ready.get(self.key.as_slice()) else {
            return false;
        };
        self.out.clear();
        self.out.extend_from_slice(ready);
        self.out[..2].copy_from_slice(&query.id.to_be_bytes());
        self.out[2] = self.out[2] & 0xfe | u8::from(query.recursion_desired);
        let question = message::HEADER..message::HEADER + query.question.len();
        self.out[question].copy_from_slice(query.question);
        true
    }

    fn make_ready(&mut self, query: &Query<'_>) {
        self.out = answer(&self.options.zones, query, query.udp_max());
        if self.ready.len() >= READY_MAX {
            self.ready.clear();
        }
        let key = self.key.as_slice().into();
        self.ready.insert(key, self.out.as_slice().into());
    }

    /// Whether the question of `key` has not been asked before, as far as fingerprints tell: such
    /// ones may never be asked again, and are the workers'. Others the engine keeps ready itself.
    fn is_new(&mut self) -> bool {
        if self.seen.is_empty() {
            self.seen = vec![0; SEEN].into();
        }
        let hash = self.ready.hasher().hash_one(&self.key);
        let print = (hash >> 32) as u32 | 1;
        let place = &mut self.seen[hash as usize % SEEN];
        std::mem::replace(place, print) != print
    }
}

impl Answerer for Dns {
    fn answer<'a>(
        &'a mut self,
        _: SocketAddr,
        _: SocketAddr,
        question: &'a [u8],
    ) -> Option<&'a [u8]> {
        self.answer_datagram(question)
    }
}

impl Service for Dns {
    type Connection = ();
    type Result = ();

    fn on_start(&mut self, cx: &Context<'_>) {
        for addr in &self.options.listen {
            if cx.bind(*addr).is_err() || cx.listen(*addr, self.options.backlog).is_err() {
                cx.end();
            }
        }
    }

    fn on_datagram(&mut self, cx: &Context<'_>, socket: DatagramSocketId, datagram: &Datagram<'_>) {
        let bytes = datagram.payload.contiguous(usize::MAX);
        let is_passed = |dns: &mut Dns| cx.may_pass() && dns.is_new() && cx.pass(socket, datagram);
        if let Some(answer) = self.answer_unless(&bytes, is_passed) {
            // One that finds no room is lost, as on a wire.
            let _ = cx.send_to(socket, datagram.from, Some(datagram.to), answer);
        }
    }

    fn on_open(&mut self, cx: &Context<'_>, id: ConnectionId, _: Via) -> Option<()> {
        cx.set_timer(id, self.options.idle);
        Some(())
    }

    fn on_data(&mut self, cx: &Context<'_>, id: ConnectionId, (): &mut ()) {
        cx.set_timer(id, self.options.idle);
        loop {
            let bytes = cx.received(id).contiguous(2 + TCP_MAX);
            let Some((length, rest)) = bytes.split_first_chunk::<2>() else {
                return;
            };
            let length = usize::from(u16::from_be_bytes(*length));
            let Some(bytes) = rest.get(..length) else {
                return;
            };
            let reply = match message::parse(bytes) {
                Parsed::Query(query) => answer(&self.options.zones, &query, TCP_MAX),
                Parsed::Malformed(id, code) => refusal(id, code),
                // A response or an unreadable header gets no answer.
                Parsed::Ignore => return cx.reset(id),
            };
            let prefix = (reply.len() as u16).to_be_bytes();
            let pieces = [IoSlice::new(&prefix), IoSlice::new(&reply)];
            if cx.write_all(id, &pieces).is_err() {
                // The query stays in the ring until there is room for its answer.
                return;
            }
            cx.consume(id, 2 + length);
        }
    }

    fn on_timer(&mut self, cx: &Context<'_>, id: ConnectionId, (): &mut ()) {
        cx.close(id);
    }
}
