//! Master files (RFC 1035 5), read by the crate `domain`.

use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use domain::base::rdata::ComposeRecordData;
use domain::base::{Name, ToName};
use domain::zonefile::inplace::{Entry, Zonefile};

use slipstack_service::guarded;

use super::parentheses::find_unclosed;
use super::{Record, Zone, ZoneError};
use crate::dns::name;

/// Files that include each other, at most so deep.
const INCLUDES_MAX: usize = 8;

/// Reason why a zone cannot be served.
#[derive(Debug)]
pub enum LoadError {
    Origin(String),
    Read(PathBuf, std::io::Error),
    /// With line and column.
    Syntax(PathBuf, String),
    Zone(PathBuf, ZoneError),
    TooDeep(PathBuf),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Origin(text) => write!(f, "{text} is no domain name"),
            LoadError::Read(path, error) => {
                write!(f, "{} cannot be read: {error}", path.display())
            }
            LoadError::Syntax(path, error) => write!(f, "{}:{error}", path.display()),
            LoadError::Zone(path, error) => write!(f, "{}: {error}", path.display()),
            LoadError::TooDeep(path) => {
                write!(f, "{}: files include each other too deeply", path.display())
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Reads a name as people write it: lower case, in wire format.
///
/// # Errors
/// It is no domain name.
pub fn parse_name(text: &str) -> Result<Vec<u8>, LoadError> {
    let name: Name<Vec<u8>> =
        Name::from_str(text).map_err(|_| LoadError::Origin(text.to_owned()))?;
    Ok(name::lower(name.as_slice()))
}

/// Reads a zone from a master file.
///
/// # Errors
/// The file cannot be read or is no zone; the line and column are named.
pub fn load(origin: &str, path: &Path) -> Result<Zone, LoadError> {
    let apex: Name<Vec<u8>> =
        Name::from_str(origin).map_err(|_| LoadError::Origin(origin.to_owned()))?;
    let mut reader = Reader {
        apex: name::lower(apex.as_slice()),
        records: Vec::new(),
    };
    reader.read(&apex, path, 0)?;
    Zone::build(&reader.apex, reader.records)
        .map_err(|error| LoadError::Zone(path.to_owned(), error))
}

/// Makes a zone of a master file's text. It may include no files.
///
/// # Errors
/// The text is no zone.
pub fn load_text(origin: &str, text: &[u8]) -> Result<Zone, LoadError> {
    let apex: Name<Vec<u8>> =
        Name::from_str(origin).map_err(|_| LoadError::Origin(origin.to_owned()))?;
    let mut reader = Reader {
        apex: name::lower(apex.as_slice()),
        records: Vec::new(),
    };
    let path = Path::new(origin);
    reader.read_text(&apex, path, text, INCLUDES_MAX)?;
    Zone::build(&reader.apex, reader.records)
        .map_err(|error| LoadError::Zone(path.to_owned(), error))
}

struct Reader {
    apex: Vec<u8>,
    records: Vec<Record>,
}

impl Reader {
    fn read(&mut self, origin: &Name<Vec<u8>>, path: &Path, depth: usize) -> Result<(), LoadError> {
        if depth > INCLUDES_MAX {
            return Err(LoadError::TooDeep(path.to_owned()));
        }
        let unreadable = |error| LoadError::Read(path.to_owned(), error);
        let text = fs::read(path).map_err(unreadable)?;
        self.read_text(origin, path, &text, depth)
    }

    /// Reads a file's text. A panic of the parser is an error of the file, and the server goes on.
    fn read_text(
        &mut self,
        origin: &Name<Vec<u8>>,
        path: &Path,
        text: &[u8],
        depth: usize,
    ) -> Result<(), LoadError> {
        let syntax = |error: String| LoadError::Syntax(path.to_owned(), error);
        if let Some((line, column)) = find_unclosed(text) {
            return Err(syntax(format!(
                "{line}:{column}: this parenthesis is not closed"
            )));
        }
        // The parser wants the last line to end, too.
        let text = match text.last() {
            None | Some(b'\n') => Cow::Borrowed(text),
            Some(_) => Cow::Owned([text, b"\n"].concat()),
        };
        let read = guarded(|| self.read_entries(origin, path, (&*text).into(), depth));
        read.unwrap_or_else(|| {
            Err(syntax(
                " the parser failed at something in this file".to_owned(),
            ))
        })
    }

    fn read_entries(
        &mut self,
        origin: &Name<Vec<u8>>,
        path: &Path,
        mut entries: Zonefile,
        depth: usize,
    ) -> Result<(), LoadError> {
        entries.set_origin(origin.to_bytes());
        // A class may be left out everywhere.
        entries.set_default_class(domain::base::iana::Class::IN);
        loop {
            let syntax =
                |error: &dyn fmt::Display| LoadError::Syntax(path.to_owned(), error.to_string());
            match entries.next_entry().map_err(|error| syntax(&error))? {
                None => return Ok(()),
                Some(Entry::Record(record)) => {
                    let owner: Name<Vec<u8>> = record.owner().to_name();
                    let owner = name::lower(owner.as_slice());
                    if !name::is_within(&owner, &self.apex) {
                        let error = ZoneError::OutOfZone(owner);
                        return Err(LoadError::Zone(path.to_owned(), error));
                    }
                    let mut data = Vec::new();
                    record
                        .data()
                        .compose_rdata(&mut data)
                        .map_err(|_| syntax(&"a record is too long"))?;
                    self.records.push(Record {
                        owner: owner.into(),
                        rtype: record.rtype().to_int(),
                        ttl: record.ttl().as_secs(),
                        data: data.into(),
                    });
                }
                Some(Entry::Include {
                    path: other,
                    origin: of,
                }) => {
                    let folder = path.parent().unwrap_or(Path::new(""));
                    let other = folder.join(&*other);
                    let of = of.map_or_else(|| origin.clone(), |of| of.to_name());
                    self.read(&of, &other, depth + 1)?;
                }
            }
        }
    }
}

/// Reads base 64 (RFC 4648 4), as keys are written.
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
    domain::utils::base64::decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: &str = "$TTL 60\n@ SOA ns host 1 2 3 4 5\n@ NS ns\nns A 10.0.0.1\n";

    #[test]
    fn the_last_line_may_end_with_the_file() {
        for last in [
            "w A 10.0.0.2",
            "*.w TXT $1 ",
            "w TXT \"a\" ",
            "w TXT a ; and so on",
            "  ",
        ] {
            let zone = load_text("a.test", format!("{ZONE}{last}").as_bytes());
            let ended = load_text("a.test", format!("{ZONE}{last}\n").as_bytes());
            let count = |zone: Result<Zone, LoadError>| zone.unwrap().records().count();
            assert_eq!(count(zone), count(ended), "{last}");
        }
    }
}
