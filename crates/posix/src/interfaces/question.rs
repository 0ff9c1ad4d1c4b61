//! Requests for the list of addresses (RTM_GETADDR), and the datagrams that answer them.

use std::net::IpAddr;

use slipstack_mem::Lock;

use crate::interfaces::OwnAddress;
use crate::interfaces::route_question::RouteAnswer;

// linux/netlink.h, linux/rtnetlink.h, linux/if_addr.h
pub(crate) const HEADER: usize = 16;
pub(crate) const DONE: u16 = 3;
pub(crate) const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const MULTI: u16 = 2;
const FILTERED: u16 = 0x20;
const DUMP: u16 = 0x300;
const PERMANENT: u8 = 0x80;
const SCOPE_LINK: u8 = 253;

mod attribute {
    pub(crate) const ADDRESS: u16 = 1;
    pub(crate) const LOCAL: u16 = 2;
    pub(crate) const LABEL: u16 = 3;
    pub(crate) const BROADCAST: u16 = 4;
    pub(crate) const CACHE_INFO: u16 = 6;
    pub(crate) const FLAGS: u16 = 8;
}

/// Bytes of one datagram, which fit the smallest buffer that rtnetlink(7) allows.
const DATAGRAM_MAX: usize = 4096;

/// An open socket of NETLINK_ROUTE.
#[derive(Debug)]
pub(crate) struct RouteSocket {
    pub(crate) id: u64,
    pub(crate) asked: Lock<Option<Asked>>,
}

/// A request that has not been answered yet.
#[derive(Debug)]
pub(crate) enum Asked {
    Addresses(Question),
    Route(RouteAnswer),
}

/// A request for a list of addresses that has not been answered yet.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) sequence: u32,
    /// Addresses still to be sent, the next one last.
    pub(crate) left: Vec<OwnAddress>,
}

/// The fields of a message's header that matter here.
pub(crate) struct Header {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) port: u32,
}

impl Header {
    pub(crate) fn read(bytes: &[u8]) -> Option<Header> {
        let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        Some(Header {
            kind: half(4)?,
            flags: half(6)?,
            sequence: word(8)?,
            port: word(12)?,
        })
    }
}

impl Question {
    /// Returns the question in these bytes, if it is for addresses.
    pub(crate) fn read(bytes: &[u8], own: impl FnOnce() -> Vec<OwnAddress>) -> Option<Question> {
        let header = Header::read(bytes)?;
        if header.kind != GET_ADDRESS || header.flags & DUMP == 0 {
            return None;
        }
        let family = i32::from(*bytes.get(HEADER)?);
        // struct ifaddrmsg, or struct rtgenmsg, which is a family alone.
        let index = bytes.get(HEADER + 4..HEADER + 8);
        let index = index.map_or(0, |word| {
            u32::from_ne_bytes([word[0], word[1], word[2], word[3]])
        });
        let is_wanted = |own: &OwnAddress| {
            (family == libc::AF_UNSPEC || family == family_of(own.ip))
                && [0, own.interface].contains(&index)
        };
        let left: Vec<OwnAddress> = own().into_iter().filter(is_wanted).rev().collect();
        (!left.is_empty()).then_some(Question {
            sequence: header.sequence,
            left,
        })
    }

    /// The next datagram, and how many addresses are in it; the kernel's next one begins with
    /// `first`.
    pub(crate) fn datagram(&self, first: &Header) -> (Vec<u8>, usize) {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for own in self.left.iter().rev() {
            let message = message(own, first);
            if count > 0 && bytes.len() + message.len() > DATAGRAM_MAX {
                break;
            }
            bytes.extend(message);
            count += 1;
        }
        (bytes, count)
    }
}

pub(crate) fn family_of(ip: IpAddr) -> i32 {
    match ip {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    }
}

/// One RTM_NEWADDR, with the kernel's attributes in its order.
fn message(own: &OwnAddress, first: &Header) -> Vec<u8> {
    const FOR_EVER: [u8; 16] = [
        255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let is_local = matches!(own.ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let mut bytes = vec![0; HEADER];
    bytes.extend([family_of(own.ip) as u8, own.prefix, PERMANENT]);
    bytes.push(if is_local { SCOPE_LINK } else { 0 });
    bytes.extend(own.interface.to_ne_bytes());
    let flags = u32::from(PERMANENT).to_ne_bytes();
    match own.ip {
        IpAddr::V4(v4) => {
            put(&mut bytes, attribute::ADDRESS, &v4.octets());
            put(&mut bytes, attribute::LOCAL, &v4.octets());
            if let Some(all) = own.broadcast() {
                put(&mut bytes, attribute::BROADCAST, &all.octets());
            }
            let label = [own.name.as_bytes(), &[0]].concat();
            put(&mut bytes, attribute::LABEL, &label);
            put(&mut bytes, attribute::FLAGS, &flags);
            put(&mut bytes, attribute::CACHE_INFO, &FOR_EVER);
        }
        IpAddr::V6(v6) => {
            put(&mut bytes, attribute::ADDRESS, &v6.octets());
            put(&mut bytes, attribute::CACHE_INFO, &FOR_EVER);
            put(&mut bytes, attribute::FLAGS, &flags);
        }
    }
    put_header(
        &mut bytes,
        NEW_ADDRESS,
        MULTI | first.flags & FILTERED,
        first,
    );
    bytes
}

/// Fills in the header (struct nlmsghdr) of a message that belongs to the same answer as `first`.
pub(crate) fn put_header(message: &mut [u8], kind: u16, flags: u16, first: &Header) {
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message[8..12].copy_from_slice(&first.sequence.to_ne_bytes());
    message[12..HEADER].copy_from_slice(&first.port.to_ne_bytes());
}

/// An attribute (struct rtattr), filled up to a multiple of four.
pub(crate) fn put(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = 4 + value.len();
    bytes.extend((len as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len() + (len.next_multiple_of(4) - len), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interfaces::own::tests::own;

    /// RTM_GETADDR with struct ifaddrmsg.
    fn asked(flags: u16, family: i32, index: u32) -> Vec<u8> {
        let mut bytes = vec![24, 0, 0, 0];
        bytes.extend(GET_ADDRESS.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([5, 0, 0, 0, 0, 0, 0, 0, family as u8, 0, 0, 0]);
        bytes.extend(index.to_ne_bytes());
        bytes
    }

    fn reply_of(bytes: &[u8]) -> Option<Vec<String>> {
        let all = || vec![own("10.0.0.5", 24), own("fd00::5", 64)];
        let question = Question::read(bytes, all)?;
        Some(
            question
                .left
                .iter()
                .rev()
                .map(|it| it.ip.to_string())
                .collect(),
        )
    }

    #[test]
    fn a_question_for_addresses_is_answered_by_family_and_interface() {
        let both = ["10.0.0.5", "fd00::5"].map(str::to_owned).to_vec();
        assert_eq!(
            reply_of(&asked(0x301, libc::AF_UNSPEC, 0)),
            Some(both.clone())
        );
        assert_eq!(
            reply_of(&asked(0x301, libc::AF_UNSPEC, 0)[..17]),
            Some(both.clone())
        );
        assert_eq!(
            reply_of(&asked(0x301, libc::AF_UNSPEC, 7)),
            Some(both.clone())
        );
        assert_eq!(
            reply_of(&asked(0x301, libc::AF_INET, 0)),
            Some(both[..1].to_vec())
        );
        assert_eq!(
            reply_of(&asked(0x301, libc::AF_INET6, 0)),
            Some(both[1..].to_vec())
        );
        assert_eq!(reply_of(&asked(0x301, libc::AF_UNSPEC, 1)), None);
        assert_eq!(reply_of(&asked(1, libc::AF_UNSPEC, 0)), None);
        assert_eq!(reply_of(&asked(0x301, libc::AF_UNSPEC, 0)[..12]), None);
    }

    #[test]
    fn many_addresses_come_in_several_datagrams() {
        let left = (0..100).map(|n| own(&format!("10.0.0.{n}"), 24)).collect();
        let mut question = Question { sequence: 9, left };
        let first = Header {
            kind: DONE,
            flags: MULTI,
            sequence: 9,
            port: 4,
        };
        let (mut datagrams, mut addresses) = (0, 0);
        while !question.left.is_empty() {
            let (bytes, count) = question.datagram(&first);
            assert!(bytes.len() <= DATAGRAM_MAX && count > 0);
            let len = u32::from_ne_bytes(bytes[..4].try_into().unwrap()) as usize;
            assert_eq!(bytes.len(), len * count, "messages are equally long");
            question.left.truncate(question.left.len() - count);
            (datagrams, addresses) = (datagrams + 1, addresses + count);
        }
        assert_eq!((datagrams, addresses), (3, 100));
    }
}
