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
:root{--text:#1f2328;--soft:#656d76;--line:#d8dee4;--link:#0b57a4;--row:#f3f6f9;--page:#fff;\
color-scheme:light dark}\
@media(prefers-color-scheme:dark){:root{--text:#d7dce1;--soft:#8f98a3;--line:#30363d;\
--link:#7db7f0;--row:#1d2229;--page:#14171b}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--page);\
max-width:58rem;margin:2.5rem auto;padding:0 1rem}\
h1{font-size:1.3rem;font-weight:600;margin:0 0 1rem;overflow-wrap:anywhere}\
table{border-collapse:collapse;width:100%;border:1px solid var(--line)}\
th,td{text-align:left;padding:.4rem .9rem;border-top:1px solid var(--line)}\
th{color:var(--soft);font-size:.85rem;font-weight:600;background:var(--row)}\
td{overflow-wrap:anywhere}td.n,th.n{text-align:right}\
.n,.t{white-space:nowrap;width:1%;color:var(--soft);font-variant-numeric:tabular-nums}\
tr:hover td{background:var(--row)}\
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}\
a[href$=\"/\"]{font-weight:600}\
p{color:var(--soft);font-size:.85rem}\
@media(max-width:34rem){.t{display:none}th,td{padding:.5rem .6rem}}";

/// Units of sizes, each 1024 of the one before.
const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

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
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>Index of {title}</title><style>{STYLE}</style></head>\n\
         <body><h1>Index of {title}</h1>\n<table><tr><th>Name</th><th class=\"n\">Size</th>\
         <th class=\"t\">Modified (UTC)</th></tr>\n"
    );
    if !path.is_empty() {
        out.push_str(
            "<tr><td><a href=\"../\">../</a></td><td class=\"n\"></td>\
             <td class=\"t\"></td></tr>\n",
        );
    }
    for entry in &entries {
        row(&mut out, entry);
    }
    out.push_str("</table>\n");
    let plural = if entries.len() == 1 { "y" } else { "ies" };
    let _ = match is_cut {
        true => writeln!(out, "<p>Only {ENTRIES_MAX} entries are shown.</p>"),
        false => writeln!(out, "<p>{} entr{plural}</p>", entries.len()),
    };
    out.push_str("</body></html>\n");
    Ok(out)
}

fn row(out: &mut String, entry: &Entry) {
    let slash = if entry.is_directory { "/" } else { "" };
    let size = match entry.is_directory {
        true => "<td class=\"n\"></td>".to_owned(),
        false => format!(
            "<td class=\"n\" title=\"{} bytes\">{}</td>",
            entry.len,
            size(entry.len)
        ),
    };
    let date = httpdate::fmt_http_date(entry.modified);
    let _ = writeln!(
        out,
        "<tr><td><a href=\"{}{slash}\">{}{slash}</a></td>{size}\
         <td class=\"t\" title=\"{date}\">{}</td></tr>",
        link(&entry.name),
        escape(&entry.name),
        // Day, month, year, hour and minute of a date of fixed length.
        &date[5..22]
    );
}

/// Writes a number of bytes as people read it, in at most three digits.
fn size(len: u64) -> String {
    let mut unit = 0;
    let mut scaled = len as f64;
    while scaled >= 1000.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    match unit == 0 || scaled >= 10.0 {
        true => format!("{scaled:.0} {}", UNITS[unit]),
        false => format!("{scaled:.1} {}", UNITS[unit]),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_at_most_three_digits() {
        let told = [
            0,
            999,
            1000,
            1024,
            1_234_567,
            20_000_000,
            1023 << 30,
            u64::MAX,
        ]
        .map(size);
        let wanted = [
            "0 B",
            "999 B",
            "1.0 KiB",
            "1.0 KiB",
            "1.2 MiB",
            "19 MiB",
            "1.0 TiB",
            "16384 PiB",
        ];
        assert_eq!(told, wanted);
    }
}
