//! Parser of queries (RFC 1035 4.1, RFC 6891).

use super::name;
use super::types::{OPT, TSIG};

pub const HEADER: usize = 12;
/// Largest response over UDP, whatever size a client announces.
pub const UDP_MAX: usize = 1232;
/// Longest message over TCP.
pub const TCP_MAX: usize = 65_535;
/// UDP payload size of a client that sends no OPT record.
const PLAIN_MAX: usize = 512;

/// Response codes.
pub mod rcode {
    pub const NO_ERROR: u8 = 0;
    pub const FORMAT: u8 = 1;
    pub const SERVER_FAILURE: u8 = 2;
    pub const NAME: u8 = 3;
    pub const NOT_IMPLEMENTED: u8 = 4;
    pub const REFUSED: u8 = 5;
    pub const TOO_LONG: u8 = 6;
    pub const NOT_AUTHORITATIVE: u8 = 9;
    /// BADVERS (RFC 6891 9), its upper bits.
    pub const BAD_VERSION_HIGH: u8 = 1;
}

/// Operation codes.
pub mod opcode {
    pub const QUERY: u8 = 0;
    pub const NOTIFY: u8 = 4;
}

/// A query, or a NOTIFY.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    pub id: u16,
    pub flags: u16,
    /// As it was sent.
    pub qname: &'a [u8],
    pub qtype: u16,
    pub qclass: u16,
    /// Name, type and class; empty if the query has no question.
    pub question: &'a [u8],
    /// The record of the answer section of a NOTIFY, or of the authority section of an IXFR query.
    pub serial: Option<u32>,
    pub edns: Option<Edns<'a>>,
    /// Offset of the TSIG record, the message's last.
    pub tsig_at: Option<usize>,
}

/// The contents of an OPT record (RFC 6891).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns<'a> {
    pub size: u16,
    pub version: u8,
    pub is_dnssec_ok: bool,
    pub options: &'a [u8],
}

/// A message, as far as it can be read.
#[derive(Debug)]
pub enum Parsed<'a> {
    Query(Query<'a>),
    /// A NOTIFY (RFC 1996).
    Notify(Query<'a>),
    /// The response to a NOTIFY: id and name.
    Notified(u16, &'a [u8]),
    /// Answered with this code and no question: id, flags, code.
    Malformed(u16, u16, u8),
    /// Nothing to answer: no message, or a response.
    Ignore,
}

pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*four))
}

pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    let (Some(id), Some(flags)) = (u16_at(bytes, 0), u16_at(bytes, 2)) else {
        return Parsed::Ignore;
    };
    if bytes.len() < HEADER {
        return Parsed::Ignore;
    }
    let code = (flags >> 11) as u8 & 15;
    if flags & 0x8000 != 0 {
        let name_len = name::len_of(&bytes[HEADER..]).filter(|_| code == opcode::NOTIFY);
        return name_len.map_or(Parsed::Ignore, |len| {
            Parsed::Notified(id, &bytes[HEADER..HEADER + len])
        });
    }
    if code != opcode::QUERY && code != opcode::NOTIFY {
        return Parsed::Malformed(id, flags, rcode::NOT_IMPLEMENTED);
    }
    match query(bytes, id, flags) {
        Some(query) if code == opcode::NOTIFY => Parsed::Notify(query),
        Some(query) => Parsed::Query(query),
        None => Parsed::Malformed(id, flags, rcode::FORMAT),
    }
}

fn query(bytes: &[u8], id: u16, flags: u16) -> Option<Query<'_>> {
    let count = |at| u16_at(bytes, at);
    let (questions, answers, authorities) = (count(4)?, count(6)?, count(8)?);
    if questions > 1 || answers > 1 || authorities > 1 || answers + authorities > 1 {
        return None;
    }
    let mut query = Query {
        id,
        flags,
        qname: &[],
        qtype: 0,
        qclass: 0,
        question: &[],
        serial: None,
        edns: None,
        tsig_at: None,
    };
    let mut at = HEADER;
    if questions == 1 {
        let len = name::len_of(&bytes[HEADER..])?;
        at = HEADER + len + 4;
        query.question = bytes.get(HEADER..at)?;
        query.qname = &query.question[..len];
        query.qtype = u16_at(query.question, len)?;
        query.qclass = u16_at(query.question, len + 2)?;
    }
    if answers + authorities == 1 {
        at = serial_record(bytes, at, &mut query)?;
    }
    additional(bytes, at, count(10)?, &mut query)?;
    // RFC 7873 5.4: without a question the client wants only a cookie.
    let asks = questions == 1 || query.edns.is_some_and(|edns| !edns.options.is_empty());
    asks.then_some(query)
}

/// Reads the SOA record that a NOTIFY or an IXFR query may carry; returns where it ends.
fn serial_record(bytes: &[u8], at: usize, query: &mut Query<'_>) -> Option<usize> {
    let (_, fixed) = name::expand(bytes, at)?;
    let data = fixed + 10;
    let end = data + usize::from(u16_at(bytes, fixed + 8)?);
    if end > bytes.len() {
        return None;
    }
    if u16_at(bytes, fixed)? == super::types::SOA {
        let (_, second) = name::expand(bytes, data)?;
        let (_, numbers) = name::expand(bytes, second)?;
        query.serial = Some(u32_at(bytes, numbers)?);
    }
    Some(end)
}

/// Reads the additional records, of which one may be OPT and the last may be TSIG. `None`: the
/// message is malformed.
fn additional<'a>(bytes: &'a [u8], mut at: usize, count: u16, query: &mut Query<'a>) -> Option<()> {
    for number in 1..=count {
        let start = at;
        let fixed = name::skip(bytes, at)?;
        let data = fixed + 10;
        at = data + usize::from(u16_at(bytes, fixed + 8)?);
        let rdata = bytes.get(data..at)?;
        match u16_at(bytes, fixed)? {
            OPT => {
                if fixed != start + 1 || query.edns.is_some() {
                    return None;
                }
                query.edns = Some(Edns {
                    size: u16_at(bytes, fixed + 2)?,
                    version: bytes[fixed + 5],
                    is_dnssec_ok: bytes[fixed + 6] & 0x80 != 0,
                    options: rdata,
                });
            }
            // RFC 8945 5.2: the last record, and one alone.
            TSIG if number == count => query.tsig_at = Some(start),
            TSIG => return None,
            _ => {}
        }
    }
    Some(())
}

impl<'a> Query<'a> {
    /// The query of a question that was kept: name, type and class.
    pub fn of_question(id: u16, flags: u16, question: &'a [u8]) -> Query<'a> {
        let len = question.len().saturating_sub(4);
        Query {
            id,
            flags,
            qname: &question[..len],
            qtype: u16_at(question, len).unwrap_or(0),
            qclass: u16_at(question, len + 2).unwrap_or(0),
            question,
            serial: None,
            edns: None,
            tsig_at: None,
        }
    }

    /// Largest response that the client takes over UDP.
    pub fn udp_max(&self) -> usize {
        let said = self.edns.map_or(0, |edns| usize::from(edns.size));
        said.clamp(PLAIN_MAX, UDP_MAX)
    }

    /// The first byte of flags that every response to it has: QR, opcode and RD. The second has
    /// the code alone: RFC 4035 3.1.6 has CD cleared.
    pub fn response_flags(&self) -> u8 {
        response_flags(self.flags)
    }
}

fn response_flags(flags: u16) -> u8 {
    0x80 | (flags >> 8) as u8 & 0x79
}

/// A response without a question.
pub fn refusal(id: u16, flags: u16, code: u8) -> Vec<u8> {
    let (id, flags) = (id.to_be_bytes(), response_flags(flags));
    vec![id[0], id[1], flags, code, 0, 0, 0, 0, 0, 0, 0, 0]
}
