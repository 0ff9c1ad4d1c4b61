//! Requests, and detection of the end of an answer.

use clap::ValueEnum;

use crate::Options;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// HTTP/1.1 GET, connection kept
    Http,
    /// HTTP/1.1 GET with `Connection: close`: connect, request, answer, close
    HttpClose,
    /// redis GET of one key
    RedisGet,
    /// redis SET of one key
    RedisSet,
    /// memcached's `get` of a key that it does not have
    Memcached,
    /// The bytes come back as they are
    Echo,
    /// Datagrams come back as they are; each connection is a socket
    Datagrams,
}

impl Mode {
    pub fn closes(self) -> bool {
        self == Mode::HttpClose
    }
}

/// The bytes of one request.
pub fn request(options: &Options) -> Vec<u8> {
    let value = "x".repeat(options.size as usize);
    match options.mode {
        Mode::Http => format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\n\r\n",
            options.path, options.target
        ),
        Mode::HttpClose => format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            options.path, options.target
        ),
        Mode::RedisGet => "*2\r\n$3\r\nGET\r\n$7\r\nbench:k\r\n".to_string(),
        Mode::RedisSet => format!(
            "*3\r\n$3\r\nSET\r\n$7\r\nbench:k\r\n${}\r\n{value}\r\n",
            options.size
        ),
        Mode::Memcached => "get bench:k\r\n".to_string(),
        Mode::Echo | Mode::Datagrams => value,
    }
    .into_bytes()
}

/// Reason why an answer cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAnswer;

/// The length of the first complete answer in `bytes`, if it is all there.
pub fn answer_len(options: &Options, bytes: &[u8]) -> Result<Option<usize>, BadAnswer> {
    match options.mode {
        Mode::Http | Mode::HttpClose => http_len(bytes),
        Mode::RedisGet | Mode::RedisSet => redis_len(bytes),
        Mode::Memcached => memcached_len(bytes),
        Mode::Echo | Mode::Datagrams => {
            let size = options.size.max(1) as usize;
            Ok((bytes.len() >= size).then_some(size))
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

fn decimal(text: &[u8]) -> Result<usize, BadAnswer> {
    let text = std::str::from_utf8(text).map_err(|_| BadAnswer)?;
    text.trim().parse().map_err(|_| BadAnswer)
}

fn memcached_len(bytes: &[u8]) -> Result<Option<usize>, BadAnswer> {
    const MISS: &[u8] = b"END\r\n";
    match bytes.len() {
        len if len < MISS.len() => Ok(None),
        _ if bytes.starts_with(MISS) => Ok(Some(MISS.len())),
        _ => Err(BadAnswer),
    }
}

fn http_len(bytes: &[u8]) -> Result<Option<usize>, BadAnswer> {
    if bytes.len() >= 12 && !bytes.starts_with(b"HTTP/1.1 200") {
        return Err(BadAnswer);
    }
    let Some(head) = find(bytes, b"\r\n\r\n") else {
        return Ok(None);
    };
    let name = b"Content-Length:";
    let start = find(&bytes[..head], name).ok_or(BadAnswer)? + name.len();
    let end = start + find(&bytes[start..], b"\r\n").ok_or(BadAnswer)?;
    let total = head + 4 + decimal(&bytes[start..end])?;
    Ok((bytes.len() >= total).then_some(total))
}

fn redis_len(bytes: &[u8]) -> Result<Option<usize>, BadAnswer> {
    let Some(line) = find(bytes, b"\r\n") else {
        return Ok(None);
    };
    match bytes[0] {
        b'+' | b':' => Ok(Some(line + 2)),
        b'$' if &bytes[1..line] == b"-1" => Ok(Some(line + 2)),
        b'$' => {
            let total = line + 2 + decimal(&bytes[1..line])? + 2;
            Ok((bytes.len() >= total).then_some(total))
        }
        _ => Err(BadAnswer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_http_answer_ends_after_its_body() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP";
        assert_eq!(http_len(text), Ok(Some(text.len() - 4)));
        assert_eq!(http_len(&text[..text.len() - 5]), Ok(None));
        assert_eq!(http_len(b"HTTP/1.1 404 Not Found\r\n"), Err(BadAnswer));
    }

    #[test]
    fn a_redis_answer_is_a_line_or_a_counted_string() {
        assert_eq!(redis_len(b"+OK\r\n"), Ok(Some(5)));
        assert_eq!(redis_len(b"$3\r\nabc\r\n+"), Ok(Some(9)));
        assert_eq!(redis_len(b"$3\r\nabc"), Ok(None));
        assert_eq!(redis_len(b"-ERR no\r\n"), Err(BadAnswer));
    }
}
