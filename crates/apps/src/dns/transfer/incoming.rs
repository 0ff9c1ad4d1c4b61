//! Incoming transfers: a zone's records, or its changes, assembled from messages (RFC 5936, RFC
//! 1995). The zone is replaced only when the transfer is complete and valid.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::is_newer;
use crate::dns::message::{HEADER, u16_at, u32_at};
use crate::dns::name;
use crate::dns::tsig::{Distrust, Key, Session};
use crate::dns::types::{AXFR, CLASS_IN, IXFR, SOA, TSIG, compressible};
use crate::dns::zone::{Record, Soa, Zone, ZoneError, soa_numbers};

/// Most bytes of one transfer.
const TRANSFER_MAX: usize = 4 << 30;

/// Reason why there is no new version.
#[derive(Debug)]
pub enum TransferError {
    Malformed,
    Distrust(Distrust),
    /// The primary's response code.
    Refused(u8),
    /// Records in an order that makes no transfer, or differences from a version that is not ours.
    Disorder,
    TooLong,
    Zone(ZoneError),
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransferError::Malformed => write!(f, "the primary's message is malformed"),
            TransferError::Distrust(why) => {
                write!(f, "the primary's message is not valid: {why:?}")
            }
            TransferError::Refused(code) => write!(f, "the primary answers with code {code}"),
            TransferError::Disorder => write!(f, "the records make no transfer"),
            TransferError::TooLong => write!(f, "the transfer is too long"),
            TransferError::Zone(error) => write!(f, "{error}"),
        }
    }
}

/// The effect of a message.
#[derive(Debug)]
pub enum Progress {
    More,
    /// The next query is to be sent.
    Ask(Vec<u8>),
    /// The version at hand is the newest.
    Current,
    /// Everything is here: [`Incoming::finish`].
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The SOA record is queried, to compare serial numbers.
    Probe,
    First,
    Second,
    Whole,
    Removing,
    Adding,
    Done,
}

/// A transfer on its way.
#[derive(Debug)]
pub struct Incoming {
    apex: Vec<u8>,
    /// The version at hand.
    base: Option<Arc<Zone>>,
    key: Option<Arc<Key>>,
    session: Option<Session>,
    id: u16,
    phase: Phase,
    /// Differences do not fit or are not available: the whole zone is requested.
    wants_all: bool,
    newest: Option<(Soa, Record)>,
    /// Serial with which the next difference begins.
    serial: u32,
    records: Vec<Record>,
    /// With differences: whether each of the records is added.
    is_added: Vec<bool>,
    len: usize,
}

impl Incoming {
    pub fn new(apex: Vec<u8>, base: Option<Arc<Zone>>, key: Option<Arc<Key>>, id: u16) -> Incoming {
        Incoming {
            apex,
            base,
            key,
            session: None,
            id,
            phase: Phase::Probe,
            wants_all: false,
            newest: None,
            serial: 0,
            records: Vec::new(),
            is_added: Vec::new(),
            len: 0,
        }
    }

    pub fn apex(&self) -> &[u8] {
        &self.apex
    }

    /// The first query: for the SOA record.
    pub fn probe(&mut self, unix_now: u64) -> Vec<u8> {
        self.query(SOA, unix_now)
    }

    fn query(&mut self, qtype: u16, unix_now: u64) -> Vec<u8> {
        self.id = self.id.wrapping_add(1);
        let id = self.id.to_be_bytes();
        let base = self.base.as_ref().filter(|_| qtype == IXFR);
        let soa = base.and_then(|zone| zone.soa_record());
        let mut message = vec![
            id[0],
            id[1],
            0,
            0,
            0,
            1,
            0,
            0,
            0,
            soa.is_some().into(),
            0,
            0,
        ];
        message.extend_from_slice(&self.apex);
        message.extend_from_slice(&qtype.to_be_bytes());
        message.extend_from_slice(&CLASS_IN.to_be_bytes());
        if let Some(soa) = soa {
            message.extend_from_slice(&[0xc0, HEADER as u8]);
            message.extend_from_slice(&[0, SOA as u8, 0, CLASS_IN as u8, 0, 0, 0, 0]);
            message.extend_from_slice(&(soa.data.len() as u16).to_be_bytes());
            message.extend_from_slice(soa.data);
        }
        let key = self.key.clone();
        self.session = key.map(|key| Session::request(key, &mut message, unix_now));
        message
    }

    /// Takes the primary's next message.
    ///
    /// # Errors
    /// The transfer is over, without success.
    pub fn take(&mut self, message: &[u8], unix_now: u64) -> Result<Progress, TransferError> {
        self.len += message.len();
        if self.len > TRANSFER_MAX {
            return Err(TransferError::TooLong);
        }
        let parts = Parts::read(message).ok_or(TransferError::Malformed)?;
        if let Some(session) = &mut self.session {
            let verified = session.verify(message, parts.tsig_at, unix_now);
            verified.map_err(TransferError::Distrust)?;
        }
        if parts.id != self.id || !parts.is_response {
            return Err(TransferError::Malformed);
        }
        if parts.rcode != 0 {
            return self.refused(parts.rcode, unix_now);
        }
        if self.phase == Phase::Probe {
            return self.compare(&parts.answers, unix_now);
        }
        let count = parts.answers.len();
        for record in parts.answers {
            self.add(record)?;
        }
        let is_alone = self.phase == Phase::Second && count == 1 && !self.wants_all;
        if is_alone && self.is_current() {
            return Ok(Progress::Current);
        }
        match self.phase {
            Phase::Done if self.session.as_ref().is_none_or(Session::is_settled) => {
                Ok(Progress::Done)
            }
            Phase::Done => Err(TransferError::Distrust(Distrust::Unsigned)),
            _ => Ok(Progress::More),
        }
    }

    /// A primary that has no differences may say so by an error.
    fn refused(&mut self, rcode: u8, unix_now: u64) -> Result<Progress, TransferError> {
        let is_incremental = self.phase == Phase::First && !self.wants_all;
        if is_incremental && self.base.is_some() {
            self.wants_all = true;
            return Ok(Progress::Ask(self.query(AXFR, unix_now)));
        }
        Err(TransferError::Refused(rcode))
    }

    fn compare(&mut self, answers: &[Record], unix_now: u64) -> Result<Progress, TransferError> {
        let mut soa = answers.iter().filter(|record| record.rtype == SOA);
        let soa = soa.find(|record| *record.owner == *self.apex);
        let soa = soa.and_then(|record| soa_numbers(&record.data));
        let soa = soa.ok_or(TransferError::Disorder)?;
        let base = self.base.as_ref();
        if base.is_some_and(|base| !is_newer(soa.serial, base.soa.serial)) {
            return Ok(Progress::Current);
        }
        self.phase = Phase::First;
        let qtype = match base {
            Some(_) if !self.wants_all => IXFR,
            _ => AXFR,
        };
        Ok(Progress::Ask(self.query(qtype, unix_now)))
    }

    /// Returns whether the received records are differences.
    #[cfg(test)]
    pub fn is_incremental(&self) -> bool {
        !self.is_added.is_empty()
    }

    fn is_current(&self) -> bool {
        let newest = self.newest.as_ref().map(|(soa, _)| soa.serial);
        let base = self.base.as_ref().map(|base| base.soa.serial);
        newest
            .zip(base)
            .is_some_and(|(newest, base)| !is_newer(newest, base))
    }

    fn add(&mut self, record: Record) -> Result<(), TransferError> {
        let is_soa = record.rtype == SOA && *record.owner == *self.apex;
        let soa = is_soa.then(|| soa_numbers(&record.data)).flatten();
        let newest = self.newest.as_ref().map(|(soa, _)| soa.serial);
        match (self.phase, soa) {
            (Phase::First, Some(soa)) => {
                self.newest = Some((soa, record));
                self.phase = Phase::Second;
            }
            (Phase::Second, Some(soa)) if Some(soa.serial) != newest => {
                let base = self.base.as_ref().map(|base| base.soa.serial);
                if base != Some(soa.serial) {
                    return Err(TransferError::Disorder);
                }
                self.phase = Phase::Removing;
            }
            (Phase::Second | Phase::Whole, Some(soa)) => {
                if Some(soa.serial) != newest {
                    return Err(TransferError::Disorder);
                }
                self.phase = Phase::Done;
            }
            (Phase::Second | Phase::Whole, None) => {
                self.phase = Phase::Whole;
                self.keep(record, None);
            }
            (Phase::Removing, Some(soa)) => {
                self.serial = soa.serial;
                self.phase = Phase::Adding;
            }
            (Phase::Removing, None) => self.keep(record, Some(false)),
            (Phase::Adding, Some(soa)) if Some(soa.serial) == newest => self.phase = Phase::Done,
            (Phase::Adding, Some(soa)) if soa.serial == self.serial => {
                self.phase = Phase::Removing;
            }
            (Phase::Adding, None) => self.keep(record, Some(true)),
            (Phase::Adding | Phase::First | Phase::Done | Phase::Probe, _) => {
                return Err(TransferError::Disorder);
            }
        }
        Ok(())
    }

    /// Keeps a record; one outside the zone is ignored.
    fn keep(&mut self, record: Record, is_added: Option<bool>) {
        if name::is_within(&record.owner, &self.apex) {
            self.records.push(record);
            self.is_added.extend(is_added);
        }
    }

    /// Makes the zone of everything that has come: work for a thread of its own.
    ///
    /// # Errors
    /// The differences do not fit the version at hand, or the records make no zone.
    pub fn finish(self) -> Result<Zone, TransferError> {
        let (_, soa) = self.newest.ok_or(TransferError::Disorder)?;
        let base = self.base;
        let records = match (&base, self.is_added.is_empty()) {
            (Some(base), false) => apply(base, self.records, &self.is_added)?,
            _ => self.records,
        };
        let all = std::iter::once(soa).chain(records);
        let mut zone = Zone::build(&self.apex, all).map_err(TransferError::Zone)?;
        if let Some(base) = &base {
            zone.follow(base);
        }
        Ok(zone)
    }
}

/// Applies differences in their order. A record's TTL is not part of its identity.
fn apply(
    base: &Zone,
    records: Vec<Record>,
    is_added: &[bool],
) -> Result<Vec<Record>, TransferError> {
    let mut kept: HashMap<Record, u32> = HashMap::with_capacity(base.records);
    let of = |mut record: Record| {
        let ttl = std::mem::take(&mut record.ttl);
        (record, ttl)
    };
    for record in base.records() {
        let (record, ttl) = of(record.to_record());
        kept.insert(record, ttl);
    }
    for (record, is_added) in records.into_iter().zip(is_added) {
        let (record, ttl) = of(record);
        if *is_added {
            kept.insert(record, ttl);
        } else {
            kept.remove(&record).ok_or(TransferError::Disorder)?;
        }
    }
    let with_ttl = |(record, ttl)| Record { ttl, ..record };
    Ok(kept.into_iter().map(with_ttl).collect())
}

/// A parsed response.
struct Parts {
    id: u16,
    is_response: bool,
    rcode: u8,
    answers: Vec<Record>,
    tsig_at: Option<usize>,
}

impl Parts {
    fn read(message: &[u8]) -> Option<Parts> {
        let flags = u16_at(message, 2)?;
        let count = |index: usize| u16_at(message, 4 + 2 * index);
        let mut at = HEADER;
        for _ in 0..count(0)? {
            at = name::expand(message, at)?.1 + 4;
        }
        let mut answers = Vec::new();
        for _ in 0..count(1)? {
            let (record, end) = read_record(message, at)?;
            answers.extend(record);
            at = end;
        }
        let mut tsig_at = None;
        for _ in 0..usize::from(count(2)?) + usize::from(count(3)?) {
            let (_, fixed) = name::expand(message, at)?;
            tsig_at = (u16_at(message, fixed)? == TSIG).then_some(at);
            at = fixed + 10 + usize::from(u16_at(message, fixed + 8)?);
        }
        (at <= message.len()).then_some(Parts {
            id: u16_at(message, 0)?,
            is_response: flags & 0x8000 != 0,
            rcode: flags as u8 & 15,
            answers,
            tsig_at,
        })
    }
}

/// Reads a record, names in its data written out; returns it, if it is of class IN, and its end.
fn read_record(message: &[u8], at: usize) -> Option<(Option<Record>, usize)> {
    let (owner, fixed) = name::expand(message, at)?;
    let (rtype, class) = (u16_at(message, fixed)?, u16_at(message, fixed + 2)?);
    let start = fixed + 10;
    let end = start + usize::from(u16_at(message, fixed + 8)?);
    let raw = message.get(start..end)?;
    let data = match compressible(rtype) {
        None => raw.to_vec(),
        Some((skip, names)) => {
            let mut data = raw.get(..skip)?.to_vec();
            let mut at = start + skip;
            for _ in 0..names {
                let (name, next) = name::expand(message, at)?;
                data.extend_from_slice(&name);
                at = next;
            }
            data.extend_from_slice(message.get(at..end)?);
            data
        }
    };
    let record = Record {
        owner: name::lower(&owner).into(),
        rtype,
        ttl: u32_at(message, fixed + 4)?,
        data: data.into(),
    };
    Some(((class == CLASS_IN).then_some(record), end))
}
