//! Pages that list a directory.

use std::fmt::Write;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::fs::{AtFlags, Dir, FileType, statat};

/// Most entries of a page.
const ENTRIES_MAX: usize = 10_000;

/// Bytes of a name that stay as they are in a link.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

const STYLE: &str = "\
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#222}\
table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #e4e4e4}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
a{color:#0b57a4;text-decoration:none}a:hover{text-decoration:underline}\
@media(prefers-color-scheme:dark){body{background:#181a1b;color:#ddd}a{color:#7db7f0}\
th,td{border-color:#333}}";

struct Entry {
    name: String,
    is_directory: bool,
    len: u64,
    modified: SystemTime,
}

/// Encodes a name for a link.
pub fn link(name: &str) -> String {
    utf8_percent_encode(name, PLAIN).to_string()
}

/// Escapes text for HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// The page of a directory; `path` is relative to the root.
///
/// # Errors
/// The directory cannot be read.
pub fn page(path: &str, directory: BorrowedFd<'_>) -> io::Result<String> {
    let (entries, is_cut) = entries(directory)?;
    let title = escape(&format!("/{path}"));
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n<table><tr><th>Name</th><th class=\"n\">Size</th>\
         <th class=\"n\">Modified</th></tr>\n"
    );
    if !path.is_empty() {
        out.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for entry in &entries {
        row(&mut out, entry);
    }
    out.push_str("</table>\n");
    if is_cut {
        let _ = writeln!(out, "<p>Only {ENTRIES_MAX} entries are shown.</p>");
    }
    out.push_str("</body></html>\n");
    Ok(out)
}

fn row(out: &mut String, entry: &Entry) {
    let slash = if entry.is_directory { "/" } else { "" };
    let size = match entry.is_directory {
        true => String::new(),
        false => entry.len.to_string(),
    };
    let _ = writeln!(
        out,
        "<tr><td><a href=\"{}{slash}\">{}{slash}</a></td><td class=\"n\">{size}</td>\
         <td class=\"n\">{}</td></tr>",
        link(&entry.name),
        escape(&entry.name),
        httpdate::fmt_http_date(entry.modified)
    );
}

/// The entries, directories first, by name. Returns whether there are more.
fn entries(directory: BorrowedFd<'_>) -> io::Result<(Vec<Entry>, bool)> {
    let mut entries = Vec::new();
    let mut is_cut = false;
    for item in Dir::read_from(directory)? {
        let item = item?;
        let name = item.file_name();
        // A file whose name is not UTF-8 cannot be requested.
        let Ok(text) = name.to_str() else { continue };
        if text == "." || text == ".." {
            continue;
        }
        if entries.len() == ENTRIES_MAX {
            is_cut = true;
            break;
        }
        let Ok(stat) = statat(directory, name, AtFlags::empty()) else {
            continue;
        };
        let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
        entries.push(Entry {
            name: text.to_owned(),
            is_directory: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
            len: u64::try_from(stat.st_size).unwrap_or(0),
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        });
    }
    entries.sort_by(|a, b| {
        let key = |entry: &Entry| (!entry.is_directory, entry.name.clone());
        key(a).cmp(&key(b))
    });
    Ok((entries, is_cut))
}
