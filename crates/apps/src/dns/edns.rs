//! Options of the OPT record: cookies (RFC 7873, RFC 9018), NSID (RFC 5001), keep-alive (RFC 7828),
//! extended errors (RFC 8914).

use std::net::IpAddr;
use std::time::Duration;

use siphasher::sip::SipHasher24;

use super::message::{Edns, UDP_MAX, u16_at, u32_at};
use super::types::OPT;
use std::hash::Hasher as _;

/// An OPT record without options.
pub const OPT_LEN: usize = 11;
const NSID: u16 = 3;
const COOKIE: u16 = 10;
const KEEP_ALIVE: u16 = 11;
const EXTENDED_ERROR: u16 = 15;
/// RFC 8914 4.21: the name is in no zone of this server.
pub const NOT_AUTHORITATIVE: u16 = 20;

const CLIENT_COOKIE: usize = 8;
const SERVER_COOKIE: usize = 16;
/// Lengths of a cookie that names a server's too.
const FULL_COOKIE: std::ops::RangeInclusive<usize> = 16..=40;
/// RFC 9018 4.3: a server cookie is good for an hour, and may be five minutes ahead.
const COOKIE_AGE_MAX: u32 = 3600;
const COOKIE_AHEAD_MAX: u32 = 300;

/// The server's identity in OPT records, and the secret of its cookies.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    pub nsid: Vec<u8>,
    pub cookie_secret: [u8; 16],
    /// The idle timeout that clients over TCP are told.
    pub idle: Duration,
}

/// Origin of a query.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    pub ip: IpAddr,
    pub is_tcp: bool,
    /// Seconds since 1970.
    pub unix_now: u64,
}

/// The options of a response.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    options: Vec<u8>,
    /// The query had a cookie that this server made for its address.
    pub is_address_proven: bool,
}

impl Reply {
    /// Reads a query's options. `None`: they are malformed.
    pub fn read(edns: &Edns<'_>, client: &Client, identity: &Identity) -> Option<Reply> {
        let mut reply = Reply::default();
        let mut rest = edns.options;
        let mut has_cookie = false;
        while !rest.is_empty() {
            let (code, len) = (u16_at(rest, 0)?, usize::from(u16_at(rest, 2)?));
            let value = rest.get(4..4 + len)?;
            match code {
                NSID if !identity.nsid.is_empty() => reply.put(NSID, &identity.nsid),
                COOKIE if !has_cookie => {
                    has_cookie = true;
                    reply.put_cookie(value, client, identity)?;
                }
                KEEP_ALIVE if client.is_tcp => {
                    // In tenths of seconds.
                    let tenths = (identity.idle.as_millis() / 100).min(0xffff) as u16;
                    reply.put(KEEP_ALIVE, &tenths.to_be_bytes());
                }
                _ => {}
            }
            rest = &rest[4 + len..];
        }
        Some(reply)
    }

    fn put(&mut self, code: u16, value: &[u8]) {
        self.options.extend_from_slice(&code.to_be_bytes());
        self.options
            .extend_from_slice(&(value.len() as u16).to_be_bytes());
        self.options.extend_from_slice(value);
    }

    fn put_cookie(&mut self, value: &[u8], client: &Client, identity: &Identity) -> Option<()> {
        if value.len() != CLIENT_COOKIE && !FULL_COOKIE.contains(&value.len()) {
            return None;
        }
        let (of_client, of_server) = value.split_at(CLIENT_COOKIE);
        let now = client.unix_now as u32;
        self.is_address_proven = of_server.len() == SERVER_COOKIE
            && u32_at(of_server, 4).is_some_and(|time| {
                let (age, ahead) = (now.wrapping_sub(time), time.wrapping_sub(now));
                let is_timely = age <= COOKIE_AGE_MAX || ahead <= COOKIE_AHEAD_MAX;
                is_timely && of_server == server_cookie(of_client, time, client.ip, identity)
            });
        let fresh = server_cookie(of_client, now, client.ip, identity);
        self.put(COOKIE, &[of_client, &fresh].concat());
        Some(())
    }

    /// Adds an extended error.
    pub fn explain(&mut self, code: u16) {
        self.put(EXTENDED_ERROR, &code.to_be_bytes());
    }

    /// Length of the OPT record.
    pub fn len(&self) -> usize {
        OPT_LEN + self.options.len()
    }

    /// Adds the OPT record to a message. `high`: the upper bits of the response code.
    #[inline]
    pub fn put_record(&self, message: &mut Vec<u8>, is_dnssec_ok: bool, high: u8) {
        let [size_high, size_low] = (UDP_MAX as u16).to_be_bytes();
        let [len_high, len_low] = (self.options.len() as u16).to_be_bytes();
        let flags = u8::from(is_dnssec_ok) << 7;
        message.extend_from_slice(&[
            0, 0, OPT as u8, size_high, size_low, high, 0, flags, 0, len_high, len_low,
        ]);
        message.extend_from_slice(&self.options);
        add_additional(message);
    }
}

/// Counts one more record in the additional section.
#[inline]
pub fn add_additional(message: &mut [u8]) {
    let count = u16_at(message, 10).unwrap_or(0).wrapping_add(1);
    message[10..12].copy_from_slice(&count.to_be_bytes());
}

/// The cookie of RFC 9018 4: version, time, and a hash of both with the client's cookie and
/// address.
fn server_cookie(of_client: &[u8], time: u32, ip: IpAddr, identity: &Identity) -> [u8; 16] {
    let mut cookie = [0; SERVER_COOKIE];
    cookie[0] = 1;
    cookie[4..8].copy_from_slice(&time.to_be_bytes());
    let mut hasher = SipHasher24::new_with_key(&identity.cookie_secret);
    hasher.write(of_client);
    hasher.write(&cookie[..8]);
    match ip {
        IpAddr::V4(ip) => hasher.write(&ip.octets()),
        IpAddr::V6(ip) => hasher.write(&ip.octets()),
    }
    cookie[8..].copy_from_slice(&hasher.finish().to_le_bytes());
    cookie
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9018 appendix A.1.
    #[test]
    fn cookies_are_those_of_rfc_9018() {
        let identity = Identity {
            cookie_secret: *b"\xe5\xe9\x73\xe5\xa6\xb2\xa4\x3f\x48\xe7\xdc\x84\x9e\x37\xbf\xcf",
            ..Identity::default()
        };
        let of_client = b"\x24\x64\xc4\xab\xcf\x10\xc9\x57";
        let ip = "198.51.100.100".parse().unwrap();
        let cookie = server_cookie(of_client, 1_559_731_985, ip, &identity);
        assert_eq!(
            cookie,
            *b"\x01\0\0\0\x5c\xf7\x9f\x11\x1f\x81\x30\xc3\xee\xe2\x94\x80"
        );
    }

    #[test]
    fn a_cookie_proves_the_address_for_an_hour() {
        let identity = Identity::default();
        let client = |unix_now| Client {
            ip: "192.0.2.1".parse().unwrap(),
            is_tcp: false,
            unix_now,
        };
        let read = |options: &[u8], now| {
            let edns = Edns {
                size: 1232,
                version: 0,
                is_dnssec_ok: false,
                options,
            };
            Reply::read(&edns, &client(now), &identity)
        };
        let first = read(b"\0\x0a\0\x08abcdefgh", 1_000_000).unwrap();
        assert!(!first.is_address_proven);
        let again = |now| read(&first.options, now).unwrap().is_address_proven;
        assert!(again(1_000_000) && again(1_003_600) && again(999_701));
        assert!(!again(1_003_601) && !again(999_699));
        assert!(read(b"\0\x0a\0\x07abcdefg", 0).is_none(), "a short cookie");
        assert!(read(b"\0\x0a\0\x09abcdefghi", 0).is_none());
        assert!(read(b"\0\x0a\0", 0).is_none());
    }
}
