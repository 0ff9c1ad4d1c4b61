//! Responses: built record set by record set, with compressed names (RFC 1035 4.1.4).

use super::message::{HEADER, Query, rcode};
use super::types::{RRSIG, compressible};
use super::zone::RrSet;

/// A section of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Answer,
    Authority,
    Additional,
}

/// Names that later ones are compared with.
const NAMES_MAX: usize = 64;

/// A response in the making: record sets that do not fit are left out whole.
pub struct Builder {
    bytes: Vec<u8>,
    max: usize,
    question_end: usize,
    /// Offsets of names that later ones can point to.
    names: Vec<u16>,
    counts: [u16; 3],
    pub is_authoritative: bool,
    pub rcode: u8,
    is_truncated: bool,
    /// The client wants signatures and proofs.
    pub is_dnssec_ok: bool,
}

impl Builder {
    /// Begins a response of at most `max` bytes.
    pub fn new(query: &Query<'_>, max: usize) -> Builder {
        let mut bytes = Vec::with_capacity(512);
        bytes.extend_from_slice(&query.id.to_be_bytes());
        bytes.extend_from_slice(&[query.response_flags(), 0]);
        bytes.extend_from_slice(&[0, u8::from(!query.question.is_empty()), 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(query.question);
        let mut builder = Builder {
            question_end: bytes.len(),
            bytes,
            max,
            names: Vec::new(),
            counts: [0; 3],
            is_authoritative: false,
            rcode: rcode::NO_ERROR,
            is_truncated: false,
            is_dnssec_ok: query.edns.is_some_and(|edns| edns.is_dnssec_ok),
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

    /// Returns whether the name at `at` of the message is this one.
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
            let mut known = known.filter(|at| usize::from(*at) < start);
            let found = known.find(|at| self.is_at((*at).into(), rest));
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

    /// Adds one record; it may go beyond the limit.
    pub fn put_record(&mut self, owner: &[u8], rtype: u16, ttl: u32, data: &[u8]) {
        self.put_name(owner);
        self.bytes.extend_from_slice(&rtype.to_be_bytes());
        self.bytes.extend_from_slice(&[0, 1]);
        self.bytes.extend_from_slice(&ttl.to_be_bytes());
        let length_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        match compressible(rtype) {
            Some((skip, names)) if data.len() > skip => self.put_names(data, skip, names),
            _ => self.bytes.extend_from_slice(data),
        }
        let length = (self.bytes.len() - length_at - 2) as u16;
        self.bytes[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    }

    fn put_names(&mut self, data: &[u8], skip: usize, names: usize) {
        self.bytes.extend_from_slice(&data[..skip]);
        let mut rest = &data[skip..];
        for _ in 0..names {
            let Some(len) = super::name::len_of(rest) else {
                break;
            };
            self.put_name(&rest[..len]);
            rest = &rest[len..];
        }
        self.bytes.extend_from_slice(rest);
    }

    /// Adds all records of a set, with its signatures if the client wants them, or none if they do
    /// not fit. Whether they did.
    pub fn put_set(&mut self, section: Section, owner: &[u8], set: &RrSet) -> bool {
        self.put_set_with_ttl(section, owner, set, set.ttl)
    }

    pub fn put_set_with_ttl(
        &mut self,
        section: Section,
        owner: &[u8],
        set: &RrSet,
        ttl: u32,
    ) -> bool {
        let sigs: &[Box<[u8]>] = if self.is_dnssec_ok { &set.sigs } else { &[] };
        self.put_all(
            section,
            owner,
            ttl,
            &[(set.rtype, &set.rdata), (RRSIG, sigs)],
        )
    }

    /// Adds all records of lists with their types, or none if they do not fit. Whether they did.
    pub fn put_all(
        &mut self,
        section: Section,
        owner: &[u8],
        ttl: u32,
        lists: &[(u16, &[Box<[u8]>])],
    ) -> bool {
        let (len, names) = (self.bytes.len(), self.names.len());
        let mut count = 0;
        for (rtype, list) in lists {
            for data in *list {
                self.put_record(owner, *rtype, ttl, data);
                count += 1;
                if self.bytes.len() > self.max {
                    self.bytes.truncate(len);
                    self.names.truncate(names);
                    return false;
                }
            }
        }
        self.counts[section as usize] += count;
        true
    }

    /// Adds a text of class CHAOS.
    pub fn put_chaos(&mut self, owner: &[u8], data: &[u8]) {
        self.put_name(owner);
        self.bytes.extend_from_slice(&[0, 16, 0, 3, 0, 0, 0, 0]);
        self.bytes
            .extend_from_slice(&(data.len() as u16).to_be_bytes());
        self.bytes.extend_from_slice(data);
    }

    /// Counts a record put by [`Builder::put_record`].
    pub fn count(&mut self, section: Section) {
        self.counts[section as usize] += 1;
    }

    /// Length of the message so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Something that belongs to the response does not fit.
    pub fn truncate(&mut self) {
        self.is_truncated = true;
    }

    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// The message, without an OPT record. One that is truncated has its question alone.
    pub fn finish(mut self) -> Vec<u8> {
        if self.is_truncated {
            self.bytes.truncate(self.question_end);
            self.counts = [0; 3];
        }
        self.bytes[2] |= if self.is_authoritative { 4 } else { 0 };
        self.bytes[2] |= if self.is_truncated { 2 } else { 0 };
        self.bytes[3] |= self.rcode & 15;
        for (at, count) in self.counts.into_iter().enumerate() {
            self.bytes[6 + 2 * at..8 + 2 * at].copy_from_slice(&count.to_be_bytes());
        }
        self.bytes
    }
}
