//! A request's head: parsed by `httparse`, then checked against RFC 9112.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::status::Status;

/// Longest request line.
pub const LINE_MAX: usize = 8 * 1024;
/// Longest head.
pub const HEAD_MAX: usize = 32 * 1024;
/// Most header fields.
const FIELDS_MAX: usize = 100;

/// Methods that are answered, and others, which get a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Other(Status),
}

/// Length of the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Body {
    #[default]
    None,
    Length(u64),
    Chunked,
}

/// Header fields that matter, borrowed from the head.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fields<'a> {
    pub if_match: Option<&'a [u8]>,
    pub if_none_match: Option<&'a [u8]>,
    pub if_modified_since: Option<&'a [u8]>,
    pub if_unmodified_since: Option<&'a [u8]>,
    pub if_range: Option<&'a [u8]>,
    pub range: Option<&'a [u8]>,
    pub referer: Option<&'a [u8]>,
    pub user_agent: Option<&'a [u8]>,
}

impl Fields<'_> {
    /// Whether the answer depends on the file alone.
    pub fn are_unconditional(&self) -> bool {
        let conditions = [
            self.if_match,
            self.if_none_match,
            self.if_modified_since,
            self.if_unmodified_since,
            self.if_range,
            self.range,
        ];
        conditions.iter().all(Option::is_none)
    }
}

/// A request without its body.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub method: Method,
    /// Name of the method, as it was sent.
    pub method_name: &'a str,
    pub target: &'a str,
    /// HTTP/1.1, not 1.0.
    pub is_v11: bool,
    pub keeps_alive: bool,
    pub body: Body,
    pub expects: bool,
    pub fields: Fields<'a>,
}

/// The outcome of parsing the bytes that have come so far.
#[derive(Debug)]
pub enum Parsed<'a> {
    /// A head of this length.
    Request(Request<'a>, usize),
    /// The beginning of one.
    Partial,
}

/// Parses the head at the beginning of `bytes`.
///
/// # Errors
/// The status that answers it; the connection ends after that.
pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, Status> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut []);
    match head.parse_with_uninit_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete(len)) => {
            check_line_ends(&bytes[..len])?;
            check_sizes(&bytes[..len])?;
            let request = request(&head)?;
            Ok(Parsed::Request(request, len))
        }
        Ok(httparse::Status::Partial) => {
            check_line_ends(bytes)?;
            check_sizes(bytes)?;
            Ok(Parsed::Partial)
        }
        Err(httparse::Error::TooManyHeaders) => Err(Status::HeadersTooLarge),
        Err(httparse::Error::Version) => Err(version_status(bytes)),
        Err(_) => {
            check_sizes(bytes)?;
            Err(Status::BadRequest)
        }
    }
}

/// Requires CR LF at line ends: servers that accept a bare LF and servers that do not see different
/// requests.
pub fn check_line_ends(bytes: &[u8]) -> Result<(), Status> {
    let is_bare = |at: usize| at == 0 || bytes[at - 1] != b'\r';
    match memchr::memchr_iter(b'\n', bytes).any(is_bare) {
        true => Err(Status::BadRequest),
        false => Ok(()),
    }
}

fn check_sizes(bytes: &[u8]) -> Result<(), Status> {
    let start = bytes
        .iter()
        .position(|byte| !matches!(byte, b'\r' | b'\n'))
        .unwrap_or(bytes.len());
    let line = memchr::memchr(b'\n', &bytes[start..]);
    if line.unwrap_or(bytes.len() - start) > LINE_MAX {
        return Err(Status::UriTooLong);
    }
    if bytes.len() > HEAD_MAX {
        return Err(Status::HeadersTooLarge);
    }
    Ok(())
}

/// HTTP/2.0 and later are versions; HTTP/x is nonsense.
fn version_status(bytes: &[u8]) -> Status {
    let line = bytes
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let word = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    match word.strip_prefix(b"HTTP/") {
        // A word too many before the version, not the version, is wrong.
        Some(b"1.0" | b"1.1") => Status::BadRequest,
        Some([major, b'.', minor]) if major.is_ascii_digit() && minor.is_ascii_digit() => {
            Status::VersionNotSupported
        }
        _ => Status::BadRequest,
    }
}

/// # Errors
/// The bytes after the head of TRACE and CONNECT may be no request.
fn method(name: &str) -> Result<Method, Status> {
    Ok(match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" | "PUT" | "DELETE" | "OPTIONS" | "PATCH" => Method::Other(Status::MethodNotAllowed),
        "TRACE" | "CONNECT" => return Err(Status::MethodNotAllowed),
        _ => Method::Other(Status::NotImplemented),
    })
}

/// Fields that may come once.
#[derive(Default)]
struct Framing<'a> {
    length: Option<u64>,
    is_chunked: bool,
    host: Option<&'a [u8]>,
    says_close: bool,
    says_keep_alive: bool,
    expects: bool,
}

fn request<'a>(head: &httparse::Request<'_, 'a>) -> Result<Request<'a>, Status> {
    let is_v11 = head.version == Some(1);
    let (mut framing, mut fields) = (Framing::default(), Fields::default());
    for field in head.headers.iter() {
        // RFC 9112 5.2: a folded line is refused; `httparse` takes none.
        take_field(field.name, field.value, &mut framing, &mut fields)?;
    }
    // RFC 9112 6.1 and 6.3: both lengths are an attempt to smuggle.
    if framing.is_chunked && (framing.length.is_some() || !is_v11) {
        return Err(Status::BadRequest);
    }
    // RFC 9110 4.2.1: an empty host is invalid.
    let is_named = framing.host.is_some_and(|host| !host.is_empty());
    if (is_v11 && !is_named) || framing.host.is_some_and(<[u8]>::is_empty) {
        return Err(Status::BadRequest);
    }
    let body = match framing {
        Framing {
            is_chunked: true, ..
        } => Body::Chunked,
        Framing {
            length: Some(len @ 1..),
            ..
        } => Body::Length(len),
        _ => Body::None,
    };
    let (method_name, target) = (
        head.method.unwrap_or_default(),
        head.path.unwrap_or_default(),
    );
    Ok(Request {
        method: method(method_name)?,
        method_name,
        target,
        is_v11,
        keeps_alive: !framing.says_close && (is_v11 || framing.says_keep_alive),
        body,
        expects: framing.expects,
        fields,
    })
}

fn take_field<'a>(
    name: &str,
    value: &'a [u8],
    framing: &mut Framing<'a>,
    fields: &mut Fields<'a>,
) -> Result<(), Status> {
    let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
    let slot = match name.len() {
        4 if is("host") => {
            let is_second = framing.host.replace(value).is_some();
            return match is_second || !is_host(value) {
                true => Err(Status::BadRequest),
                false => Ok(()),
            };
        }
        5 if is("range") => &mut fields.range,
        6 if is("expect") => {
            framing.expects = true;
            return Ok(());
        }
        7 if is("referer") => &mut fields.referer,
        8 if is("if-match") => &mut fields.if_match,
        8 if is("if-range") => &mut fields.if_range,
        10 if is("connection") => {
            take_connection(value, framing);
            return Ok(());
        }
        10 if is("user-agent") => &mut fields.user_agent,
        13 if is("if-none-match") => &mut fields.if_none_match,
        14 if is("content-length") => {
            let length = parse_length(value).ok_or(Status::BadRequest)?;
            return match framing.length.replace(length) {
                Some(_) => Err(Status::BadRequest),
                None => Ok(()),
            };
        }
        17 if is("if-modified-since") => &mut fields.if_modified_since,
        17 if is("transfer-encoding") => {
            if !value.eq_ignore_ascii_case(b"chunked") || framing.is_chunked {
                return Err(match value.eq_ignore_ascii_case(b"chunked") {
                    true => Status::BadRequest,
                    false => Status::NotImplemented,
                });
            }
            framing.is_chunked = true;
            return Ok(());
        }
        19 if is("if-unmodified-since") => &mut fields.if_unmodified_since,
        _ => return Ok(()),
    };
    *slot = Some(value);
    Ok(())
}

fn take_connection(value: &[u8], framing: &mut Framing<'_>) {
    for word in value.split(|byte| *byte == b',') {
        let word = word.trim_ascii();
        framing.says_close |= word.eq_ignore_ascii_case(b"close");
        framing.says_keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
    }
}

/// Digits and nothing else: signs and blanks are read differently by different servers.
pub fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn is_host(value: &[u8]) -> bool {
    let is_host_byte =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte);
    value.iter().all(is_host_byte)
}

/// Position of a target's path: origin form, or absolute form (RFC 9112 3.2).
pub fn path_of(target: &str) -> Result<&str, Status> {
    let path = if target.starts_with('/') {
        target
    } else {
        let rest = strip_scheme(target).ok_or(Status::BadRequest)?;
        match rest.find(['/', '?']) {
            Some(at) if rest.as_bytes()[at] == b'/' => &rest[at..],
            _ => "/",
        }
    };
    let end = path.find(['?', '#']).unwrap_or(path.len());
    Ok(&path[..end])
}

fn strip_scheme(target: &str) -> Option<&str> {
    let (scheme, rest) = target.split_once("://")?;
    let is_http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    // RFC 9110 4.2.1: an empty host is invalid.
    let has_host = !rest.is_empty() && !rest.starts_with(['/', '?', '#', ':']);
    (is_http && has_host).then_some(rest)
}

/// The rest of a body that is thrown away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Skip {
    #[default]
    Nothing,
    Bytes(u64),
    /// At the beginning of a chunk's size.
    ChunkSize,
    /// Bytes of a chunk, then CR LF.
    Chunk(u64),
    /// Lines after the last chunk.
    Trailer,
}

/// Longest line of a chunk's size or a trailer.
const CHUNK_LINE_MAX: usize = 256;

impl Skip {
    pub fn new(body: Body) -> Skip {
        match body {
            Body::None => Skip::Nothing,
            Body::Length(len) => Skip::Bytes(len),
            Body::Chunked => Skip::ChunkSize,
        }
    }

    /// Returns the number of bytes that follow before anything else needs parsing; `None` if there
    /// is no such run.
    pub fn run(self) -> Option<u64> {
        match self {
            Skip::Bytes(left) | Skip::Chunk(left @ 1..) => Some(left),
            _ => None,
        }
    }

    /// Takes `len` bytes of [`Skip::run`].
    pub fn take(&mut self, len: u64) {
        *self = match *self {
            Skip::Bytes(left) if left > len => Skip::Bytes(left - len),
            Skip::Bytes(_) => Skip::Nothing,
            Skip::Chunk(left) => Skip::Chunk(left.saturating_sub(len)),
            other => other,
        };
    }

    /// Skips the part of the body in `bytes`; returns its number of bytes. If [`Skip::Nothing`] is
    /// left the body has ended.
    ///
    /// # Errors
    /// The chunks are malformed.
    pub fn pass(&mut self, bytes: &[u8]) -> Result<usize, Status> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            match *self {
                Skip::Nothing => return Ok(at),
                Skip::Bytes(left) => {
                    let taken = left.min(rest.len() as u64);
                    *self = match left - taken {
                        0 => Skip::Nothing,
                        left => Skip::Bytes(left),
                    };
                    at += taken as usize;
                    if *self != Skip::Nothing {
                        return Ok(at);
                    }
                }
                Skip::ChunkSize => {
                    let Some(line) = line(rest)? else {
                        return Ok(at);
                    };
                    *self = match chunk_size(line).ok_or(Status::BadRequest)? {
                        0 => Skip::Trailer,
                        size => Skip::Chunk(size),
                    };
                    at += line.len() + 2;
                }
                Skip::Chunk(0) => {
                    if rest.len() < 2 {
                        return Ok(at);
                    }
                    if &rest[..2] != b"\r\n" {
                        return Err(Status::BadRequest);
                    }
                    *self = Skip::ChunkSize;
                    at += 2;
                }
                Skip::Chunk(left) => {
                    let taken = left.min(rest.len() as u64);
                    if taken == 0 {
                        return Ok(at);
                    }
                    *self = Skip::Chunk(left - taken);
                    at += taken as usize;
                }
                Skip::Trailer => {
                    let Some(line) = line(rest)? else {
                        return Ok(at);
                    };
                    if line.is_empty() {
                        *self = Skip::Nothing;
                    }
                    at += line.len() + 2;
                }
            }
        }
    }
}

/// A line without its CR LF; `None` if its end has not come. A bare CR, which others may take for
/// the line's end, and other controls are errors (RFC 9112 2.2).
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Status> {
    let is_bad = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) if at > 0 && bytes[at - 1] == b'\r' => match &bytes[..at - 1] {
            line if line.iter().any(is_bad) => Err(Status::BadRequest),
            line => Ok(Some(line)),
        },
        Some(_) => Err(Status::BadRequest),
        None if bytes.len() > CHUNK_LINE_MAX => Err(Status::BadRequest),
        None => Ok(None),
    }
}

/// A chunk's size, extensions ignored.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii_end();
    if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The part of a file that a range names (RFC 9110 14.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    All,
    Part(Range<u64>),
    /// None of it exists.
    Unsatisfiable,
}

/// Reads a Range field. More than one range, and other units, give everything, as is allowed.
pub fn wanted(range: &[u8], len: u64) -> Wanted {
    let text = std::str::from_utf8(range).unwrap_or_default().trim();
    let Some(spec) = text.strip_prefix("bytes=") else {
        return Wanted::All;
    };
    let Some((first, last)) = spec.split_once('-') else {
        return Wanted::All;
    };
    let number = |text: &str| -> Option<u64> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().unwrap_or(u64::MAX))
    };
    match (first.trim(), last.trim()) {
        ("", last) => match number(last) {
            None => Wanted::All,
            Some(0) => Wanted::Unsatisfiable,
            Some(_) if len == 0 => Wanted::Unsatisfiable,
            Some(count) => Wanted::Part(len.saturating_sub(count)..len),
        },
        (first, last) => {
            let (Some(first), last) = (number(first), number(last)) else {
                return Wanted::All;
            };
            if !spec.ends_with('-') && last.is_none_or(|last| last < first) {
                return Wanted::All;
            }
            if first >= len {
                return Wanted::Unsatisfiable;
            }
            let end = last.map_or(len, |last| last.saturating_add(1).min(len));
            Wanted::Part(first..end)
        }
    }
}
