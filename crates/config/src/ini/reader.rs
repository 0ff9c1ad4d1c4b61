//! The lines of an INI file as F-Stack's parser takes them.
//!
//! A reader of our own, because what it must accept is that parser's dialect (`=` or `:`, a comment
//! behind white space and `;` only, indented lines that give the key before them a new value), and
//! because every message names a line: the INI crates in wide use accept other dialects and keep no
//! line numbers.

/// Longest line in bytes.
const LINE_LEN_MAX: usize = 2048;

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub line: usize,
    pub section: String,
    pub key: String,
    pub value: String,
}

/// Reads all keys; the error is a line and its defect.
pub(crate) fn read(text: &str) -> Result<Vec<Entry>, (usize, String)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut entries: Vec<Entry> = Vec::new();
    let mut section = String::new();
    let mut is_in_key = false;
    for (index, raw) in text.lines().enumerate() {
        let line = index + 1;
        if raw.len() > LINE_LEN_MAX {
            return Err((line, format!("it has more than {LINE_LEN_MAX} bytes")));
        }
        let is_indented = raw.starts_with(|c: char| c.is_ascii_whitespace());
        let trimmed = raw.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if is_indented
            && is_in_key
            && let Some(last) = entries.last()
        {
            // The handler of F-Stack is called again with the key before it.
            let (section, key) = (last.section.clone(), last.key.clone());
            let value = uncommented(trimmed).to_owned();
            entries.push(Entry {
                line,
                section,
                key,
                value,
            });
        } else if let Some(name) = trimmed.strip_prefix('[') {
            let Some((name, _)) = name.split_once(']') else {
                return Err((line, "the section's name has no `]`".to_owned()));
            };
            section = name.to_owned();
            is_in_key = false;
        } else {
            let Some((key, value)) = uncommented(trimmed).split_once(['=', ':']) else {
                return Err((line, "it is neither `[section]` nor `key=value`".to_owned()));
            };
            entries.push(Entry {
                line,
                section: section.clone(),
                key: key.trim().to_owned(),
                value: value.trim().to_owned(),
            });
            is_in_key = true;
        }
    }
    Ok(entries)
}

/// Cuts a comment off, which begins with a `;` behind white space.
fn uncommented(text: &str) -> &str {
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        if c == ';' && before.is_ascii_whitespace() && at > 0 {
            return text[..at].trim_end();
        }
        before = c;
    }
    text
}
