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
pub(super) struct Entry {
    pub line: usize,
    pub section: String,
    pub key: String,
    pub value: String,
}

/// Reads all keys; the error is a line and what is wrong with it.
pub(super) fn read(text: &str) -> Result<Vec<Entry>, (usize, String)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(usize, String, String)> {
        let shown = |it: Entry| (it.line, format!("{}.{}", it.section, it.key), it.value);
        read(text).unwrap().into_iter().map(shown).collect()
    }

    #[test]
    fn keys_comments_and_continued_lines_are_read_as_f_stack_reads_them() {
        let text = "\u{feff}# c\n[dpdk]\nlcore_mask = 1 ; one core\n; c\nallow=02:00.0,a=b\n\
                    [port0]\nvip_addr:10.0.0.1;10.0.0.2\n  10.0.0.3\n";
        let expected = [
            (3, "dpdk.lcore_mask", "1"),
            (5, "dpdk.allow", "02:00.0,a=b"),
            (7, "port0.vip_addr", "10.0.0.1;10.0.0.2"),
            (8, "port0.vip_addr", "10.0.0.3"),
        ];
        let expected = expected.map(|(line, key, value)| (line, key.to_owned(), value.to_owned()));
        assert_eq!(pairs(text), expected);
    }

    #[test]
    fn a_line_that_is_no_key_is_named() {
        assert_eq!(read("[dpdk]\nword\n").unwrap_err().0, 2);
        assert_eq!(read("[dpdk\n").unwrap_err().0, 1);
        assert_eq!(read(&"x".repeat(3000)).unwrap_err().0, 1);
    }
}
