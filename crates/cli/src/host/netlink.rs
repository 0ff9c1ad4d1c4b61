//! Interfaces and addresses of this network namespace, by a route netlink dump.

use std::io;
use std::net::IpAddr;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, sendto,
    socket_with,
};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const IFLA_IFNAME: u16 = 3;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;
const HEADER_LEN: usize = 16;
const ANSWER_LEN_MAX: usize = 64 * 1024;

pub struct Link {
    pub index: u32,
    pub name: String,
    pub is_up: bool,
    pub is_loopback: bool,
}

pub struct Address {
    /// Index of the interface.
    pub link: u32,
    pub address: IpAddr,
}

pub fn links() -> io::Result<Vec<Link>> {
    let mut links = Vec::new();
    // struct ifinfomsg: family, pad, type u16, index u32, flags u32, change u32
    dump(RTM_GETLINK, 16, &mut |kind, body| {
        if kind != RTM_NEWLINK || body.len() < 16 {
            return;
        }
        let name = attribute(&body[16..], IFLA_IFNAME).unwrap_or_default();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let flags = word(body, 8);
        links.push(Link {
            index: word(body, 4),
            name: String::from_utf8_lossy(name).into_owned(),
            is_up: flags & IFF_UP != 0,
            is_loopback: flags & IFF_LOOPBACK != 0,
        });
    })?;
    Ok(links)
}

pub fn addresses() -> io::Result<Vec<Address>> {
    let mut addresses = Vec::new();
    // struct ifaddrmsg: family, prefix length, flags, scope, index u32
    dump(RTM_GETADDR, 8, &mut |kind, body| {
        if kind != RTM_NEWADDR || body.len() < 8 {
            return;
        }
        let attributes = &body[8..];
        let found = attribute(attributes, IFA_LOCAL).or_else(|| attribute(attributes, IFA_ADDRESS));
        let address = found.and_then(|bytes| match bytes.len() {
            4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
            _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        });
        if let Some(address) = address {
            let link = word(body, 4);
            addresses.push(Address { link, address });
        }
    })?;
    Ok(addresses)
}

fn dump(request: u16, body_len: usize, each: &mut dyn FnMut(u16, &[u8])) -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let len = HEADER_LEN + body_len;
    let mut message = vec![0_u8; len];
    message[0..4].copy_from_slice(&(len as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&request.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    sendto(
        &socket,
        &message,
        SendFlags::empty(),
        &netlink::SocketAddrNetlink::new(0, 0),
    )?;
    let mut answer = vec![0_u8; ANSWER_LEN_MAX];
    loop {
        let (received, _) = recv(&socket, answer.as_mut_slice(), RecvFlags::empty())?;
        if received == 0 || is_last(&answer[..received], each)? {
            return Ok(());
        }
    }
}

/// Hands out the messages of one answer; true after the dump's end.
fn is_last(mut rest: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> io::Result<bool> {
    while rest.len() >= HEADER_LEN {
        let len = word(rest, 0) as usize;
        if len < HEADER_LEN || len > rest.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let body = &rest[HEADER_LEN..len];
        match u16::from_ne_bytes([rest[4], rest[5]]) {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR if body.len() >= 4 => {
                let code = word(body, 0).cast_signed();
                return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
            }
            kind => each(kind, body),
        }
        rest = rest.get((len + 3) & !3..).unwrap_or_default();
    }
    Ok(false)
}

fn attribute(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    while rest.len() >= 4 {
        let len = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
        let kind = u16::from_ne_bytes([rest[2], rest[3]]);
        let value = rest.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        rest = rest.get((len + 3) & !3..)?;
    }
    None
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_behind_others_and_damage_is_not_followed() {
        let bytes = [6, 0, 9, 0, b'x', b'y', 0, 0, 8, 0, 2, 0, 10, 0, 0, 1];
        assert_eq!(attribute(&bytes, 2), Some(&[10, 0, 0, 1][..]));
        assert_eq!(attribute(&bytes, 3), None);
        assert_eq!(attribute(&[200, 0, 2, 0, 1], 2), None);
        assert_eq!(attribute(&[0, 0, 9, 0, 1], 2), None);
    }
}
