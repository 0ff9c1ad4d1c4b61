//! Requests for the route to one destination (RTM_GETROUTE), and the message that answers them.

use std::net::IpAddr;

use crate::interfaces::question::{HEADER, Header, family_of, put, put_header};

// linux/netlink.h, linux/rtnetlink.h
const ERROR: u16 = 2;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
/// Length of struct nlmsghdr and struct rtmsg.
const FIXED: usize = HEADER + 12;
/// Length of struct nlmsghdr and struct nlmsgerr, which contains the header of the request.
const ERROR_LEN: usize = HEADER + 4 + HEADER;
/// NLM_F_CAPPED: an acknowledgement repeats only the header of the request.
const CAPPED: u16 = 0x100;
const TABLE_MAIN: u8 = 254;
const TABLE_LOCAL: u8 = 255;
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;
const CLONED: u32 = 0x200;

mod attribute {
    pub(crate) const DST: u16 = 1;
    pub(crate) const SRC: u16 = 2;
    pub(crate) const OIF: u16 = 4;
    pub(crate) const GATEWAY: u16 = 5;
    pub(crate) const PREFSRC: u16 = 7;
    pub(crate) const CACHEINFO: u16 = 12;
    pub(crate) const TABLE: u16 = 15;
}

/// A request for the route to one destination.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RouteQuestion {
    sequence: u32,
    is_acknowledged: bool,
    pub(crate) to: IpAddr,
    pub(crate) from: Option<IpAddr>,
    /// The interface by which the way is to lead.
    pub(crate) interface: Option<u32>,
}

impl RouteQuestion {
    /// Returns the question in these bytes, if it is for one destination.
    pub(crate) fn read(bytes: &[u8]) -> Option<RouteQuestion> {
        let header = Header::read(bytes)?;
        if header.kind != GET_ROUTE || header.flags & DUMP != 0 {
            return None;
        }
        let family = i32::from(*bytes.get(HEADER)?);
        let (mut to, mut from, mut interface) = (None, None, None);
        let mut rest = bytes.get(FIXED..)?;
        while let [len_low, len_high, kind_low, kind_high, ..] = *rest {
            let len = usize::from(u16::from_ne_bytes([len_low, len_high]));
            let value = rest.get(4..len)?;
            match u16::from_ne_bytes([kind_low, kind_high]) {
                attribute::DST => to = ip_of(family, value),
                attribute::SRC => from = Some(ip_of(family, value)?),
                attribute::OIF => interface = Some(u32::from_ne_bytes(value.try_into().ok()?)),
                _ => {}
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        Some(RouteQuestion {
            sequence: header.sequence,
            is_acknowledged: header.flags & ACK != 0,
            to: to?,
            from,
            interface,
        })
    }
}

fn ip_of(family: i32, value: &[u8]) -> Option<IpAddr> {
    match family {
        libc::AF_INET => Some(IpAddr::from(<[u8; 4]>::try_from(value).ok()?)),
        libc::AF_INET6 => Some(IpAddr::from(<[u8; 16]>::try_from(value).ok()?)),
        _ => None,
    }
}

/// The way of the stack's packets to a destination.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) is_own: bool,
    pub(crate) source: IpAddr,
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) interface: u32,
}

/// The answer to a question, which takes the place of the kernel's.
#[derive(Debug)]
pub(crate) struct RouteAnswer {
    question: RouteQuestion,
    way: Way,
    /// The program has it; the kernel's refusal still waits, in the place of an acknowledgement.
    is_delivered: bool,
}

/// Treatment of the kernel's next message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Message that replaces the kernel's.
    Instead(Vec<u8>),
    /// Message that precedes the kernel's, in whose place the acknowledgement comes next.
    Before(Vec<u8>),
    /// Acknowledgement that replaces the kernel's refusal.
    Acknowledged(Vec<u8>),
}

impl RouteAnswer {
    pub(crate) fn new(question: RouteQuestion, way: Way) -> RouteAnswer {
        RouteAnswer {
            question,
            way,
            is_delivered: false,
        }
    }

    /// Returns the answer if `first`, the kernel's next message, is its reply to the question.
    pub(crate) fn reply(&self, first: &Header) -> Option<Reply> {
        if first.sequence != self.question.sequence {
            return None;
        }
        match first.kind {
            ERROR if self.is_delivered => Some(Reply::Acknowledged(self.acknowledgement(first))),
            ERROR if self.question.is_acknowledged => Some(Reply::Before(self.message(first))),
            ERROR | NEW_ROUTE => Some(Reply::Instead(self.message(first))),
            _ => None,
        }
    }

    /// Notes that a reply of the kind `Before` has been delivered.
    pub(crate) fn deliver(&mut self) {
        self.is_delivered = true;
    }

    /// One RTM_NEWROUTE, with the kernel's attributes.
    fn message(&self, first: &Header) -> Vec<u8> {
        let to = self.question.to;
        let address_bits = if to.is_ipv4() { 32 } else { 128 };
        let source_bits = self.question.from.map_or(0, |_| address_bits);
        let kind = if self.way.is_own { LOCAL } else { UNICAST };
        // The kernel names the table of an IPv4 route only if asked (RTM_F_LOOKUP_TABLE).
        let table = match self.way.is_own && to.is_ipv6() {
            true => TABLE_LOCAL,
            false => TABLE_MAIN,
        };
        let mut bytes = vec![0; HEADER];
        bytes.extend([family_of(to) as u8, address_bits, source_bits, 0]);
        bytes.extend([table, 0, 0, kind]);
        bytes.extend(CLONED.to_ne_bytes());
        put_ip(&mut bytes, attribute::DST, to);
        if let Some(from) = self.question.from {
            put_ip(&mut bytes, attribute::SRC, from);
        }
        put(
            &mut bytes,
            attribute::TABLE,
            &u32::from(table).to_ne_bytes(),
        );
        put(
            &mut bytes,
            attribute::OIF,
            &self.way.interface.to_ne_bytes(),
        );
        if self.question.from.is_none() {
            put_ip(&mut bytes, attribute::PREFSRC, self.way.source);
        }
        if let Some(gateway) = self.way.gateway {
            put_ip(&mut bytes, attribute::GATEWAY, gateway);
        }
        put(&mut bytes, attribute::CACHEINFO, &[0; 32]);
        put_header(&mut bytes, NEW_ROUTE, 0, first);
        bytes
    }

    fn acknowledgement(&self, first: &Header) -> Vec<u8> {
        let mut bytes = vec![0; ERROR_LEN];
        bytes[20..24].copy_from_slice(&(FIXED as u32).to_ne_bytes());
        bytes[24..26].copy_from_slice(&GET_ROUTE.to_ne_bytes());
        bytes[28..32].copy_from_slice(&self.question.sequence.to_ne_bytes());
        bytes[32..36].copy_from_slice(&first.port.to_ne_bytes());
        put_header(&mut bytes, ERROR, CAPPED, first);
        bytes
    }
}

fn put_ip(bytes: &mut Vec<u8>, kind: u16, ip: IpAddr) {
    match ip {
        IpAddr::V4(v4) => put(bytes, kind, &v4.octets()),
        IpAddr::V6(v6) => put(bytes, kind, &v6.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(flags: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; FIXED];
        bytes[4..6].copy_from_slice(&GET_ROUTE.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[8] = 9;
        bytes[16] = libc::AF_INET as u8;
        for (kind, value) in attributes {
            put(&mut bytes, *kind, value);
        }
        bytes
    }

    fn answer(flags: u16) -> RouteAnswer {
        let question = RouteQuestion::read(&asked(flags, &[(attribute::DST, &[10, 0, 0, 9])]));
        let way = Way {
            is_own: false,
            source: [10, 0, 0, 5].into(),
            gateway: Some([10, 0, 0, 1].into()),
            interface: 7,
        };
        RouteAnswer::new(question.unwrap(), way)
    }

    fn header(kind: u16) -> Header {
        let mut bytes = [0; 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[8] = 9;
        Header::read(&bytes).unwrap()
    }

    #[test]
    fn questions_for_one_destination_are_read_with_what_they_ask_for() {
        let to: &[u8] = &[10, 0, 0, 9];
        let read = |bytes: &[u8]| RouteQuestion::read(bytes);
        let all = [
            (attribute::DST, to),
            (attribute::OIF, &[7, 0, 0, 0]),
            (attribute::SRC, &[10, 0, 0, 5]),
        ];
        let question = read(&asked(ACK | 1, &all)).unwrap();
        assert_eq!(question.to, IpAddr::from([10, 0, 0, 9]));
        assert_eq!(question.interface, Some(7));
        assert_eq!(question.from, Some(IpAddr::from([10, 0, 0, 5])));
        assert!(question.is_acknowledged);
        assert_eq!(read(&asked(DUMP | 1, &all)), None, "a list");
        assert_eq!(read(&asked(1, &[])), None, "no destination");
        assert_eq!(read(&asked(1, &[(attribute::DST, &to[..3])])), None);
        assert_eq!(read(&asked(1, &all)[..FIXED + 7]), None, "cut");
        let mut endless = asked(1, &all);
        endless[FIXED] = 0;
        assert_eq!(read(&endless), None, "an attribute without length");
    }

    #[test]
    fn an_answer_replaces_the_kernels_route_or_its_refusal() {
        let answer = answer(1);
        let Some(Reply::Instead(bytes)) = answer.reply(&header(NEW_ROUTE)) else {
            panic!("no answer");
        };
        assert_eq!(bytes[..4], (bytes.len() as u32).to_ne_bytes());
        let source = [8, 0, 7, 0, 10, 0, 0, 5];
        assert!(bytes.windows(8).any(|attribute| attribute == source));
        assert_eq!(answer.reply(&header(ERROR)), Some(Reply::Instead(bytes)));
        assert_eq!(answer.reply(&header(GET_ROUTE)), None);
    }

    #[test]
    fn a_refusal_becomes_the_acknowledgement_that_was_asked_for() {
        let mut answer = answer(ACK | 1);
        assert!(matches!(
            answer.reply(&header(ERROR)),
            Some(Reply::Before(_))
        ));
        answer.deliver();
        let Some(Reply::Acknowledged(bytes)) = answer.reply(&header(ERROR)) else {
            panic!("no acknowledgement");
        };
        assert_eq!((bytes.len(), &bytes[16..20]), (ERROR_LEN, &[0; 4][..]));
    }
}
