//! Heads of requests and responses as a proxy forwards them: the ends of bodies, and removal of
//! hop-by-hop fields (RFC 9110 7.6, RFC 9112 6 and 9).

use std::net::IpAddr;

use crate::http::request::{Body, HEAD_MAX, check_line_ends, parse_length};
use crate::http::status::Status;

/// Most header fields.
const FIELDS_MAX: usize = 100;
/// Fields that hold for one connection.
const HOP_BY_HOP: [&str; 6] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];

/// A request, as far as it decides how it is passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The head for the backend.
    pub head: Vec<u8>,
    pub is_v11: bool,
    pub is_head_method: bool,
    /// The request may be sent a second time (RFC 9110 9.2.2), and has no body.
    pub is_repeatable: bool,
    pub keeps_alive: bool,
    pub body: Body,
}

/// End of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Body(Body),
    Close,
    /// 101: another protocol follows.
    Tunnel,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The head for the client, without its `Connection` field and the empty line.
    pub head: Vec<u8>,
    pub code: u16,
    pub keeps_alive: bool,
    pub ending: Ending,
}

/// The outcome of parsing the bytes that have come so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    /// A head of this length.
    Head(T, usize),
    Partial,
}

const FORWARDED_PROTO: &str = "X-Forwarded-Proto";

/// Fields that say where a message ends.
#[derive(Default)]
struct Framing<'a> {
    length: Option<u64>,
    is_chunked: bool,
    says_close: bool,
    says_keep_alive: bool,
    says_upgrade: bool,
    upgrade: Option<&'a [u8]>,
    has_host: bool,
    /// Fields that `Connection` names.
    named: Vec<&'a [u8]>,
}

impl<'a> Framing<'a> {
    fn of(fields: &[httparse::Header<'a>]) -> Result<Framing<'a>, Status> {
        let mut framing = Framing::default();
        for field in fields {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                let length = parse_length(field.value).ok_or(Status::BadRequest)?;
                // RFC 9112 6.3: two that differ are unrecoverable.
                if framing
                    .length
                    .replace(length)
                    .is_some_and(|it| it != length)
                {
                    return Err(Status::BadRequest);
                }
            } else if is("transfer-encoding") {
                if framing.is_chunked {
                    return Err(Status::BadRequest);
                }
                if !field.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Status::NotImplemented);
                }
                framing.is_chunked = true;
            } else if is("connection") {
                framing.take_connection(field.value);
            } else if is("upgrade") {
                framing.upgrade = Some(field.value);
            } else if is("host") {
                if framing.has_host {
                    return Err(Status::BadRequest);
                }
                framing.has_host = true;
            }
        }
        match framing.is_chunked && framing.length.is_some() {
            true => Err(Status::BadRequest),
            false => Ok(framing),
        }
    }

    fn take_connection(&mut self, value: &'a [u8]) {
        for word in value.split(|byte| *byte == b',') {
            let word = word.trim_ascii();
            let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
            self.says_close |= is(b"close");
            self.says_keep_alive |= is(b"keep-alive");
            self.says_upgrade |= is(b"upgrade");
            self.named.push(word);
        }
    }

    fn keeps_alive(&self, is_v11: bool) -> bool {
        !self.says_close && (is_v11 || self.says_keep_alive)
    }

    fn body(&self) -> Body {
        match self.length {
            _ if self.is_chunked => Body::Chunked,
            Some(length @ 1..) => Body::Length(length),
            _ => Body::None,
        }
    }

    /// Returns whether a field is passed on.
    fn passes(&self, name: &str) -> bool {
        let is_named = |it: &&[u8]| it.eq_ignore_ascii_case(name.as_bytes());
        // A field that frames the message cannot be named away.
        let frames = ["content-length", "transfer-encoding", "host"];
        !HOP_BY_HOP.iter().any(|it| it.eq_ignore_ascii_case(name))
            && (frames.iter().any(|it| it.eq_ignore_ascii_case(name))
                || !self.named.iter().any(is_named))
    }

    fn put_fields(&self, fields: &[httparse::Header<'_>], out: &mut Vec<u8>) {
        for field in fields.iter().filter(|field| self.passes(field.name)) {
            put_field(field.name, field.value, out);
        }
    }
}

fn put_field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn check_partial<T>(bytes: &[u8]) -> Result<Parsed<T>, Status> {
    check_line_ends(bytes)?;
    match bytes.len() > HEAD_MAX {
        true => Err(Status::HeadersTooLarge),
        false => Ok(Parsed::Partial),
    }
}

/// The client of a request, as described to its backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    pub ip: Option<IpAddr>,
    /// The request has come by TLS.
    pub is_secure: bool,
}

/// Parses a request of `sender`, and writes its head for the backend.
///
/// # Errors
/// The status that answers it.
pub fn request(bytes: &[u8], sender: Sender) -> Result<Parsed<Request>, Status> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    let len = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return check_partial(bytes),
        Err(httparse::Error::TooManyHeaders) => return Err(Status::HeadersTooLarge),
        Err(_) => return Err(Status::BadRequest),
    };
    check_line_ends(&bytes[..len])?;
    let (method, path) = (
        parsed.method.unwrap_or_default(),
        parsed.path.unwrap_or_default(),
    );
    let is_v11 = parsed.version == Some(1);
    let mut framing = Framing::of(parsed.headers)?;
    if method == "CONNECT" {
        return Err(Status::MethodNotAllowed);
    }
    if (is_v11 && !framing.has_host) || (framing.is_chunked && !is_v11) {
        return Err(Status::BadRequest);
    }
    if sender.is_secure {
        // The client's own value is not trusted.
        framing.named.push(FORWARDED_PROTO.as_bytes());
    }
    let mut head = Vec::with_capacity(len + 128);
    let version = u8::from(is_v11);
    head.extend_from_slice(format!("{method} {path} HTTP/1.{version}\r\n").as_bytes());
    framing.put_fields(parsed.headers, &mut head);
    put_field(
        "Via",
        format!("1.{version} slipstack").as_bytes(),
        &mut head,
    );
    if let Some(ip) = sender.ip {
        put_field("X-Forwarded-For", ip.to_string().as_bytes(), &mut head);
    }
    if sender.is_secure {
        put_field(FORWARDED_PROTO, b"https", &mut head);
    }
    match framing.upgrade.filter(|_| framing.says_upgrade && is_v11) {
        Some(upgrade) => {
            put_field("Connection", b"upgrade", &mut head);
            put_field("Upgrade", upgrade, &mut head);
        }
        None if !is_v11 => put_field("Connection", b"keep-alive", &mut head),
        None => {}
    }
    head.extend_from_slice(b"\r\n");
    let body = framing.body();
    let is_idempotent = matches!(method, "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE");
    let request = Request {
        head,
        is_v11,
        is_head_method: method == "HEAD",
        is_repeatable: is_idempotent && body == Body::None,
        keeps_alive: framing.keeps_alive(is_v11),
        body,
    };
    Ok(Parsed::Head(request, len))
}

/// Parses a response; `is_to_head`: it answers HEAD, and has no body whatever its fields.
///
/// # Errors
/// It cannot be forwarded.
pub fn response(bytes: &[u8], is_to_head: bool) -> Result<Parsed<Response>, Status> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut fields);
    let len = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return check_partial(bytes),
        Err(_) => return Err(Status::BadRequest),
    };
    let code = parsed.code.unwrap_or(0);
    let is_v11 = parsed.version == Some(1);
    let framing = Framing::of(parsed.headers)?;
    let ending = match code {
        101 => Ending::Tunnel,
        100..200 | 204 | 304 => Ending::Body(Body::None),
        _ if is_to_head => Ending::Body(Body::None),
        _ if framing.is_chunked || framing.length.is_some() => Ending::Body(framing.body()),
        _ => Ending::Close,
    };
    let mut head = Vec::with_capacity(len + 64);
    let reason = parsed.reason.unwrap_or_default();
    head.extend_from_slice(format!("HTTP/1.1 {code} {reason}\r\n").as_bytes());
    framing.put_fields(parsed.headers, &mut head);
    if let Some(upgrade) = framing.upgrade.filter(|_| code == 101) {
        put_field("Upgrade", upgrade, &mut head);
    }
    let response = Response {
        head,
        code,
        keeps_alive: framing.keeps_alive(is_v11),
        ending,
    };
    Ok(Parsed::Head(response, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Result<Request, Status> {
        asked_by(text, false)
    }

    fn asked_by(text: &str, is_secure: bool) -> Result<Request, Status> {
        let ip = Some(IpAddr::from([192, 0, 2, 1]));
        match request(text.as_bytes(), Sender { ip, is_secure })? {
            Parsed::Head(request, len) => {
                assert_eq!(len, text.len());
                Ok(request)
            }
            Parsed::Partial => panic!("partial: {text}"),
        }
    }

    #[test]
    fn hop_by_hop_header_fields_are_not_forwarded() {
        let text = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close, X-Mine\r\nKeep-Alive: 5\r\n\
                    X-Mine: 1\r\nX-Other: 2\r\n\r\n";
        let request = asked(text).unwrap();
        let wanted = "GET /a HTTP/1.1\r\nHost: x\r\nX-Other: 2\r\nVia: 1.1 slipstack\r\n\
                      X-Forwarded-For: 192.0.2.1\r\n\r\n";
        assert_eq!(String::from_utf8(request.head).unwrap(), wanted);
        assert!(!request.keeps_alive && request.is_repeatable);
    }

    #[test]
    fn over_tls_a_clients_own_x_forwarded_proto_is_replaced() {
        let text = "GET / HTTP/1.1\r\nHost: x\r\nx-forwarded-proto: http\r\n\r\n";
        let heads = [true, false].map(|is_secure| asked_by(text, is_secure).unwrap().head);
        let [secure, plain] = heads.map(|head| String::from_utf8(head).unwrap());
        assert!(
            secure.contains("\r\nX-Forwarded-Proto: https\r\n"),
            "{secure}"
        );
        assert!(!secure.contains("proto: http\r\n"), "{secure}");
        assert!(plain.contains("proto: http\r\n"), "{plain}");
    }

    #[test]
    fn requests_that_two_servers_could_read_differently_are_refused() {
        let bad = |fields: &str| asked(&format!("POST / HTTP/1.1\r\nHost: x\r\n{fields}\r\n"));
        let both = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n";
        assert_eq!(bad(both), Err(Status::BadRequest));
        let two = "Content-Length: 3\r\nContent-Length: 4\r\n";
        assert_eq!(bad(two), Err(Status::BadRequest));
        assert_eq!(bad("Content-Length: +3\r\n"), Err(Status::BadRequest));
        let gzip = "Transfer-Encoding: gzip\r\n";
        assert_eq!(bad(gzip), Err(Status::NotImplemented));
        let hidden = "Connection: content-length\r\nContent-Length: 3\r\n";
        let request = bad(hidden).unwrap();
        assert_eq!(request.body, Body::Length(3));
        assert!(
            String::from_utf8(request.head)
                .unwrap()
                .contains("Content-Length: 3")
        );
    }

    #[test]
    fn the_end_of_a_response_follows_from_its_header_fields() {
        let ending = |text: &str, is_to_head| match response(text.as_bytes(), is_to_head) {
            Ok(Parsed::Head(response, _)) => response.ending,
            other => panic!("{other:?}"),
        };
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(ending(ok, false), Ending::Body(Body::Length(5)));
        assert_eq!(ending(ok, true), Ending::Body(Body::None));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(ending(chunked, false), Ending::Body(Body::Chunked));
        assert_eq!(ending("HTTP/1.0 200 OK\r\n\r\n", false), Ending::Close);
        let empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(ending(empty, false), Ending::Body(Body::None));
        let other = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n";
        assert_eq!(ending(other, false), Ending::Tunnel);
    }
}
