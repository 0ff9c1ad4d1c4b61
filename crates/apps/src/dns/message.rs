//! Messages: a query taken apart, a response put together (RFC 1035 4.1).

use super::name;
use super::zone::OPT;

pub const HEADER: usize = 12;
/// Largest response over UDP, whatever a client says it takes.
pub const UDP_MAX: usize = 1232;
/// UDP payload size of a client that sends no OPT record.
const PLAIN_MAX: usize = 512;

/// Response codes.
pub mod rcode {
    pub const NO_ERROR: u8 = 0;
    pub const FORMAT: u8 = 1;
    pub const NAME: u8 = 3;
    pub const NOT_IMPLEMENTED: u8 = 4;
    pub const REFUSED: u8 = 5;
}

/// A query.
#[derive(Clone, Debug)]
pub struct Query<'a> {
    pub id: u16,
    pub recursion_desired: bool,
    /// As it was sent.
    pub qname: &'a [u8],
    pub qtype: u16,
    pub qclass: u16,
    /// Name, type and class.
    pub question: &'a [u8],
    pub edns: Option<Edns>,
}

/// The contents of an OPT record (RFC 6891).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns {
    pub size: u16,
    pub version: u8,
    pub is_dnssec_ok: bool,
}

/// A message, as far as it can be read.
#[derive(Debug)]
pub enum Parsed<'a> {
    Query(Query<'a>),
    /// Answered with this code and no question.
    Malformed(u16, u8),
    /// Nothing to answer: no message, or a response.
    Ignore,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    let (Some(id), Some(flags)) = (u16_at(bytes, 0), u16_at(bytes, 2)) else {
        return Parsed::Ignore;
    };
    if bytes.len() < HEADER || flags & 0x8000 != 0 {
        return Parsed::Ignore;
    }
    if flags >> 11 & 15 != 0 {
        return Parsed::Malformed(id, rcode::NOT_IMPLEMENTED);
    }
    match question(bytes, id, flags) {
        Some(query) => Parsed::Query(query),
        None => Parsed::Malformed(id, rcode::FORMAT),
    }
}

fn question(bytes: &[u8], id: u16, flags: u16) -> Option<Query<'_>> {
    let count = |at| u16_at(bytes, at);
    let (questions, answers, authorities) = (count(4)?, count(6)?, count(8)?);
    if questions != 1 || answers != 0 || authorities != 0 {
        return None;
    }
    let len = name::len_of(&bytes[HEADER..])?;
    let end = HEADER + len + 4;
    let question = bytes.get(HEADER..end)?;
    let edns = additional(bytes.get(end..)?, count(10)?)?;
    Some(Query {
        id,
        recursion_desired: flags & 0x0100 != 0,
        qname: &question[..len],
        qtype: u16_at(question, len)?,
        qclass: u16_at(question, len + 2)?,
        question,
        edns,
    })
}

/// The OPT record among the additional ones, of which no more than one is allowed. `None`: the
/// message is malformed.
fn additional(mut bytes: &[u8], count: u16) -> Option<Option<Edns>> {
    let mut edns = None;
    for _ in 0..count {
        let len = name::len_of(bytes)?;
        let fixed = bytes.get(len..len + 10)?;
        let rdata_len = usize::from(u16_at(fixed, 8)?);
        if u16_at(fixed, 0)? == OPT {
            if len != 1 || edns.is_some() {
                return None;
            }
            edns = Some(Edns {
                size: u16_at(fixed, 2)?,
                version: fixed[5],
                is_dnssec_ok: fixed[6] & 0x80 != 0,
            });
        }
        bytes = bytes.get(len + 10 + rdata_len..)?;
    }
    Some(edns)
}

impl Query<'_> {
    /// Largest response that the client takes over UDP.
    pub fn udp_max(&self) -> usize {
        let said = self.edns.map_or(0, |edns| usize::from(edns.size));
        said.clamp(PLAIN_MAX, UDP_MAX)
    }
}

/// A section of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Answer,
    Authority,
    Additional,
}

/// A response in the making: records that do not fit are left out whole.
pub struct Builder {
    bytes: Vec<u8>,
    max: usize,
    /// Where names begin that later ones can point to.
    names: Vec<u16>,
    counts: [u16; 3],
    pub is_authoritative: bool,
    pub rcode: u8,
    is_truncated: bool,
    edns: Option<Edns>,
}

/// Names that later ones are compared with.
const NAMES_MAX: usize = 64;
const OPT_LEN: usize = 11;

impl Builder {
    pub fn new(query: &Query<'_>, max: usize) -> Builder {
        let mut bytes = Vec::with_capacity(512);
        bytes.extend_from_slice(&query.id.to_be_bytes());
        bytes.extend_from_slice(&[u8::from(query.recursion_desired), 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(query.question);
        let mut builder = Builder {
            bytes,
            max: max - query.edns.map_or(0, |_| OPT_LEN),
            names: Vec::new(),
            counts: [0; 3],
            is_authoritative: false,
            rcode: rcode::NO_ERROR,
            is_truncated: false,
            edns: query.edns,
        };
        builder.note_names(HEADER, query.qname.len());
        builder
    }

    /// Notes where the labels of the name at `at` begin.
    fn note_names(&mut self, mut at: usize, len: usize) {
        let end = at + len;
        while at < end && self.bytes[at] != 0 && self.bytes[at] < 64 {
            if self.names.len() < NAMES_MAX && at < 0x4000 {
                self.names.push(at as u16);
            }
            at += 1 + usize::from(self.bytes[at]);
        }
    }

    /// Whether the name at `at` of the message is this one.
    fn is_at(&self, mut at: usize, mut name: &[u8]) -> bool {
        loop {
            while self.bytes[at] >= 0xc0 {
                at = usize::from(self.bytes[at] & 0x3f) << 8 | usize::from(self.bytes[at + 1]);
            }
            let len = 1 + usize::from(self.bytes[at]);
            let Some(label) = name.get(..len) else {
                return false;
            };
            if !self.bytes[at..at + len].eq_ignore_ascii_case(label) {
                return false;
            }
            if len == 1 {
                return true;
            }
            at += len;
            name = &name[len..];
        }
    }

    /// Writes a name, its end as a pointer if it was written before.
    fn put_name(&mut self, name: &[u8]) {
        let start = self.bytes.len();
        let mut rest = name;
        while rest.first().is_some_and(|len| *len != 0) {
            let known = self.names.iter().copied();
            let known = known.filter(|at| usize::from(*at) < start);
            let found = known.into_iter().find(|at| self.is_at((*at).into(), rest));
            if let Some(at) = found {
                self.bytes.extend_from_slice(&(0xc000 | at).to_be_bytes());
                let len = self.bytes.len() - start - 2;
                return self.note_names(start, len);
            }
            let len = 1 + usize::from(rest[0]);
            self.bytes.extend_from_slice(&rest[..len]);
            rest = &rest[len..];
        }
        self.bytes.push(0);
        let len = self.bytes.len() - start - 1;
        self.note_names(start, len);
    }

    /// Adds all records of a set, or none if they do not fit. Whether they did.
    pub fn put_set(
        &mut self,
        section: Section,
        owner: &[u8],
        (rtype, ttl): (u16, u32),
        rdata: &[Box<[u8]>],
    ) -> bool {
        let (len, names) = (self.bytes.len(), self.names.len());
        for data in rdata {
            self.put_name(owner);
            self.bytes.extend_from_slice(&rtype.to_be_bytes());
            self.bytes.extend_from_slice(&[0, 1]);
            self.bytes.extend_from_slice(&ttl.to_be_bytes());
            self.bytes
                .extend_from_slice(&(data.len() as u16).to_be_bytes());
            self.bytes.extend_from_slice(data);
            if self.bytes.len() > self.max {
                self.bytes.truncate(len);
                self.names.truncate(names);
                return false;
            }
        }
        let section = section as usize;
        self.counts[section] += rdata.len() as u16;
        true
    }

    /// Something that belongs to the response does not fit.
    pub fn truncate(&mut self) {
        self.is_truncated = true;
    }

    /// The message. `extended`: the upper bits of the response code.
    pub fn finish(mut self, extended: u8) -> Vec<u8> {
        self.bytes[2] |= 0x80
            | if self.is_authoritative { 4 } else { 0 }
            | if self.is_truncated { 2 } else { 0 };
        self.bytes[3] = self.rcode & 15;
        if let Some(edns) = self.edns {
            self.bytes.extend_from_slice(&[0, 0, OPT as u8]);
            self.bytes
                .extend_from_slice(&(UDP_MAX as u16).to_be_bytes());
            let ok = if edns.is_dnssec_ok { 0x80 } else { 0 };
            self.bytes.extend_from_slice(&[extended, 0, ok, 0, 0, 0]);
            self.counts[2] += 1;
        }
        for (at, count) in self.counts.into_iter().enumerate() {
            self.bytes[6 + 2 * at..8 + 2 * at].copy_from_slice(&count.to_be_bytes());
        }
        self.bytes
    }
}

/// A response without a question.
pub fn refusal(id: u16, code: u8) -> Vec<u8> {
    let id = id.to_be_bytes();
    vec![id[0], id[1], 0x80, code, 0, 0, 0, 0, 0, 0, 0, 0]
}
