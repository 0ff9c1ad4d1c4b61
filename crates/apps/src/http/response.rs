//! Heads of responses, and the choice of the response to a request (RFC 9110).

use std::fmt::Write;
use std::ops::Range;
use std::time::SystemTime;

use super::files::About;
use super::request::{Fields, Wanted, wanted};
use super::status::Status;

pub const SERVER: &str = "slipstack";
/// Length of a date as HTTP writes it.
pub const DATE_LEN: usize = 29;

/// The part of the content that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    pub status: Status,
    pub range: Range<u64>,
}

/// Weighs a request's conditions (RFC 9110 13.2.2) and its range.
pub fn select(fields: &Fields<'_>, about: &About) -> Selected {
    let empty = |status| Selected {
        status,
        range: 0..0,
    };
    if let Some(list) = fields.if_match {
        if !matches(list, &about.etag, false) {
            return empty(Status::PreconditionFailed);
        }
    } else if let (Some(since), Some(modified)) = (date(fields.if_unmodified_since), about.modified)
        && modified > since
    {
        return empty(Status::PreconditionFailed);
    }
    if let Some(list) = fields.if_none_match {
        if matches(list, &about.etag, true) {
            return empty(Status::NotModified);
        }
    } else if let (Some(since), Some(modified)) = (date(fields.if_modified_since), about.modified)
        && modified <= since
    {
        return empty(Status::NotModified);
    }
    let all = Selected {
        status: Status::Ok,
        range: 0..about.len,
    };
    let Some(range) = fields.range.filter(|_| about.modified.is_some()) else {
        return all;
    };
    if fields.if_range.is_some_and(|it| !is_same(it, about)) {
        return all;
    }
    match wanted(range, about.len) {
        Wanted::All => all,
        Wanted::Part(range) => Selected {
            status: Status::PartialContent,
            range,
        },
        Wanted::Unsatisfiable => empty(Status::RangeNotSatisfiable),
    }
}

fn date(value: Option<&[u8]>) -> Option<SystemTime> {
    let text = std::str::from_utf8(value?).ok()?;
    httpdate::parse_http_date(text.trim()).ok()
}

/// Returns whether a list of entity tags contains this one; `*` matches every existing file.
fn matches(list: &[u8], etag: &str, takes_weak: bool) -> bool {
    if list.trim_ascii() == b"*" {
        return true;
    }
    let tags = list.split(|byte| *byte == b',').map(|tag| tag.trim_ascii());
    let stripped = |tag| match takes_weak {
        true => <[u8]>::strip_prefix(tag, b"W/").unwrap_or(tag),
        false => tag,
    };
    !etag.is_empty() && tags.into_iter().any(|tag| stripped(tag) == etag.as_bytes())
}

/// If-Range: a strong tag, or exactly the date of the last change.
fn is_same(value: &[u8], about: &About) -> bool {
    match date(Some(value)) {
        Some(date) => about.modified == Some(date),
        None => value.trim_ascii() == about.etag.as_bytes(),
    }
}

/// The part of a 200's head that stays the same as long as the file does.
pub fn content_head(about: &About) -> Vec<u8> {
    let mut out = String::new();
    let _ = write!(out, "\r\nContent-Length: {}\r\n", about.len);
    validators(&mut out, about);
    out.into_bytes()
}

fn validators(out: &mut String, about: &About) {
    let _ = write!(out, "Content-Type: {}\r\n", about.mime);
    if let Some(modified) = about.modified {
        let _ = write!(
            out,
            "Last-Modified: {}\r\nETag: {}\r\nAccept-Ranges: bytes\r\n",
            httpdate::fmt_http_date(modified),
            about.etag
        );
    }
}

/// The line and fields that every response begins with.
pub fn begin(status: Status, date: &str) -> String {
    format!(
        "HTTP/1.1 {}\r\nServer: {SERVER}\r\nDate: {date}\r\n",
        status.line()
    )
}

/// The head of a response about a file that is no plain 200.
pub fn partial_head(selected: &Selected, about: &About, date: &str) -> String {
    let mut out = begin(selected.status, date);
    let Range { start, end } = selected.range;
    match selected.status {
        Status::PartialContent => {
            let _ = write!(
                out,
                "Content-Range: bytes {start}-{}/{}\r\nContent-Length: {}\r\n",
                end - 1,
                about.len,
                end - start
            );
            validators(&mut out, about);
        }
        Status::NotModified => {
            if about.modified.is_some() {
                validators(&mut out, about);
            }
        }
        Status::RangeNotSatisfiable => {
            let _ = write!(
                out,
                "Content-Range: bytes */{}\r\nContent-Length: 0\r\n",
                about.len
            );
        }
        _ => {
            let _ = write!(out, "Content-Length: {}\r\n", end - start);
            validators(&mut out, about);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn about() -> About {
        About {
            len: 1000,
            modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)),
            etag: "\"abc\"".to_owned(),
            mime: "text/plain".to_owned(),
        }
    }

    const DATE: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &[u8] = b"Sun, 06 Nov 1994 08:49:38 GMT";
    const EARLIER: &[u8] = b"Sun, 06 Nov 1994 08:49:36 GMT";

    /// Fields with one of each kind: name and value.
    fn fields(of: &[(&str, &'static [u8])]) -> Fields<'static> {
        let mut fields = Fields::default();
        for (name, value) in of {
            let slot = match *name {
                "none" => &mut fields.if_none_match,
                "match" => &mut fields.if_match,
                "since" => &mut fields.if_modified_since,
                _ => &mut fields.if_unmodified_since,
            };
            *slot = Some(value);
        }
        fields
    }

    #[test]
    fn conditional_requests_are_evaluated_in_the_order_of_rfc_9110() {
        type Given = &'static [(&'static str, &'static [u8])];
        use Status::{NotModified, Ok, PreconditionFailed};
        let table: [(Given, Status); 12] = [
            (&[], Ok),
            (&[("none", b"\"abc\"")], NotModified),
            (&[("none", b"W/\"abc\"")], NotModified),
            (&[("none", b"\"x\", \"abc\"")], NotModified),
            (&[("none", b"*")], NotModified),
            (&[("none", b"\"x\""), ("since", LATER)], Ok),
            (&[("since", DATE)], NotModified),
            (&[("since", EARLIER)], Ok),
            (&[("since", b"yesterday")], Ok),
            (&[("match", b"\"x\"")], PreconditionFailed),
            (&[("match", b"W/\"abc\"")], PreconditionFailed),
            (&[("unmodified", EARLIER)], PreconditionFailed),
        ];
        for (of, status) in table {
            assert_eq!(select(&fields(of), &about()).status, status, "{of:?}");
        }
    }

    #[test]
    fn byte_ranges_select_the_named_bytes() {
        let table: [(&[u8], Status, Range<u64>); 13] = [
            (b"bytes=0-0", Status::PartialContent, 0..1),
            (b"bytes=0-", Status::PartialContent, 0..1000),
            (b"bytes=990-2000", Status::PartialContent, 990..1000),
            (b"bytes=-10", Status::PartialContent, 990..1000),
            (b"bytes=-5000", Status::PartialContent, 0..1000),
            (b"bytes=1000-", Status::RangeNotSatisfiable, 0..0),
            (b"bytes=-0", Status::RangeNotSatisfiable, 0..0),
            (b"bytes=5-4", Status::Ok, 0..1000),
            (b"bytes=a-b", Status::Ok, 0..1000),
            (b"bytes=0-1,5-6", Status::Ok, 0..1000),
            (b"lines=0-1", Status::Ok, 0..1000),
            (
                b"bytes=99999999999999999999-",
                Status::RangeNotSatisfiable,
                0..0,
            ),
            (
                b"bytes=0-99999999999999999999",
                Status::PartialContent,
                0..1000,
            ),
        ];
        for (range, status, selected) in table {
            let fields = Fields {
                range: Some(range),
                ..Fields::default()
            };
            let text = String::from_utf8_lossy(range);
            assert_eq!(
                select(&fields, &about()),
                Selected {
                    status,
                    range: selected
                },
                "{text}"
            );
        }
    }
}
