//! Names in wire format: labels with their lengths, ended by the root's.

/// Longest name.
pub const NAME_MAX: usize = 255;

/// Returns the length of the uncompressed name at the beginning of `bytes`, or `None` if it is
/// malformed: a question's name is not compressed.
pub fn len_of(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let label = usize::from(*bytes.get(at)?);
        if label > 63 {
            return None;
        }
        at += 1 + label;
        if at > NAME_MAX {
            return None;
        }
        if label == 0 {
            return Some(at);
        }
    }
}

/// Reads a name that may be compressed: returns it and where it ends in the message, or `None` if
/// it is malformed. Pointers lead backwards, so that there is no loop.
pub fn expand(message: &[u8], start: usize) -> Option<(Vec<u8>, usize)> {
    let (mut at, mut end, mut before) = (start, None, start);
    let mut name = Vec::with_capacity(64);
    loop {
        let label = usize::from(*message.get(at)?);
        if label >= 0xc0 {
            let low = usize::from(*message.get(at + 1)?);
            end = end.or(Some(at + 2));
            at = (label & 0x3f) << 8 | low;
            if at >= before {
                return None;
            }
            before = at;
            continue;
        }
        if label > 63 {
            return None;
        }
        name.extend_from_slice(message.get(at..=at + label)?);
        at += 1 + label;
        if name.len() > NAME_MAX {
            return None;
        }
        if label == 0 {
            return Some((name, end.unwrap_or(at)));
        }
    }
}

/// Returns where a name that may be compressed ends, without following it.
#[inline]
pub fn skip(message: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            label @ 1..=63 => at += 1 + usize::from(label),
            0xc0.. => return Some(at + 2),
            _ => return None,
        }
        if at - start > NAME_MAX {
            return None;
        }
    }
}

/// In lower case: lengths are below 64 and stay as they are.
pub fn lower(name: &[u8]) -> Vec<u8> {
    name.to_ascii_lowercase()
}

/// The name without its first label; `None` for the root.
pub fn parent(name: &[u8]) -> Option<&[u8]> {
    match name.first() {
        None | Some(0) => None,
        Some(len) => name.get(1 + usize::from(*len)..),
    }
}

/// Returns whether `name` is `apex` or below it; both in lower case.
pub fn is_within(name: &[u8], apex: &[u8]) -> bool {
    let mut rest = Some(name);
    while let Some(name) = rest {
        if name.len() < apex.len() {
            return false;
        }
        if name == apex {
            return true;
        }
        rest = parent(name);
    }
    false
}

/// Returns the name that is one label longer than `above` on the way to `name`, which is below it.
pub fn next_closer<'a>(name: &'a [u8], above: &[u8]) -> &'a [u8] {
    let mut at = name;
    while let Some(parent) = parent(at) {
        if parent.len() <= above.len() {
            return at;
        }
        at = parent;
    }
    at
}

/// `*.` and the name.
pub fn wildcard(name: &[u8]) -> Vec<u8> {
    [b"\x01*", name].concat()
}

/// Returns a key whose byte order is the canonical order of names (RFC 4034 6.1), for a name in
/// lower case: its labels from the root down, each ended by a zero.
pub fn canonical_key(name: &[u8]) -> Vec<u8> {
    let mut labels = Vec::new();
    let mut at = name;
    while let Some(above) = parent(at) {
        labels.push(&at[1..at.len() - above.len()]);
        at = above;
    }
    let mut key = Vec::with_capacity(name.len() + 2);
    for label in labels.iter().rev() {
        for byte in *label {
            match byte {
                0 | 1 => key.extend_from_slice(&[1, 1 + byte]),
                other => key.push(*other),
            }
        }
        key.push(0);
    }
    key
}

/// The name as master files write it.
pub fn text(name: &[u8]) -> String {
    let mut text = String::new();
    let mut at = name;
    while let Some(above) = parent(at) {
        for byte in &at[1..at.len() - above.len()] {
            match byte {
                b'.' | b'\\' | b'"' | b';' | b'(' | b')' | b'@' | b'$' => {
                    text.push('\\');
                    text.push(char::from(*byte));
                }
                0x21..=0x7e => text.push(char::from(*byte)),
                other => text.push_str(&format!("\\{other:03}")),
            }
        }
        text.push('.');
        at = above;
    }
    if text.is_empty() {
        text.push('.');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(text: &str) -> Vec<u8> {
        let labels = text.split('.').filter(|label| !label.is_empty());
        let mut name: Vec<u8> = labels
            .flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat())
            .collect();
        name.push(0);
        name
    }

    #[test]
    fn names_are_ordered_as_rfc_4034_orders_them() {
        let mut names = vec![
            wire("example"),
            wire("a.example"),
            wire("yljkjljk.a.example"),
            wire("z.a.example"),
            wire("zabc.a.example"),
            wire("z.example"),
            b"\x01\x01\x01z\x07example\0".to_vec(),
            wire("*.z.example"),
            b"\x01\xc8\x01z\x07example\0".to_vec(),
        ];
        let sorted = names.clone();
        names.reverse();
        names.sort_by_key(|name| canonical_key(name));
        assert_eq!(names, sorted);
    }

    #[test]
    fn a_compression_pointer_must_point_backwards() {
        assert_eq!(expand(b"\x01a\0\x01b\xc0\0", 3), Some((wire("b.a"), 7)));
        assert_eq!(expand(b"\x01a\xc0\0", 0), None);
        assert_eq!(expand(b"\xc0\x02\x01a\0", 0), None);
        assert_eq!(expand(b"\x01a\xc0", 0), None);
        let long = [&[63; 64].repeat(4)[..], &[0]].concat();
        assert_eq!(expand(&long, 0), None);
    }

    #[test]
    fn skipping_a_name_ends_at_its_last_byte_or_its_pointer() {
        for (bytes, end) in [
            (&b"\x01a\x02bc\0x"[..], Some(6)),
            (b"\x01a\xc0\0x", Some(4)),
            (b"\x01a", None),
            (b"\x40a", None),
            (b"\0", Some(1)),
        ] {
            assert_eq!(skip(bytes, 0), end, "{bytes:?}");
        }
        assert_eq!(skip(&[&[63; 64].repeat(4)[..], &[0]].concat(), 0), None);
    }

    #[test]
    fn odd_bytes_are_escaped() {
        assert_eq!(text(b"\x03a.b\x02\0\xff\0"), "a\\.b.\\000\\255.");
        assert_eq!(text(b"\0"), ".");
    }

    #[test]
    fn the_next_closer_name_is_one_label_longer() {
        assert_eq!(next_closer(&wire("a.b.c.d"), &wire("d")), wire("c.d"));
        assert_eq!(next_closer(&wire("c.d"), &wire("d")), wire("c.d"));
    }
}
