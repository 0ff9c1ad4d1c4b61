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

/// Whether `name` is `apex` or lies below it; both in lower case.
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

/// `*.` and the name, if that is no too long.
pub fn wildcard(name: &[u8]) -> Vec<u8> {
    [b"\x01*", name].concat()
}
