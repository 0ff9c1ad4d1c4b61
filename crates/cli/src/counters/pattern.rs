//! Patterns of names, as in a shell.

/// Returns whether a name matches a pattern with `*` and `?`.
pub fn is_match(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut seen) = (0, 0);
    // Where the last `*` was, and how much of the name it has taken.
    let mut star = None;
    while seen < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(&b) if b == b'?' || b == name[seen] => {
                at += 1;
                seen += 1;
            }
            _ => {
                let Some((place, taken)) = star else {
                    return false;
                };
                star = Some((place, taken + 1));
                (at, seen) = (place + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::is_match;

    #[test]
    fn a_star_matches_any_number_of_characters() {
        for (pattern, name, is_meant) in [
            ("Tcp*", "TcpInSegs", true),
            ("*Segs", "TcpInSegs", true),
            ("*In*s", "TcpInSegs", true),
            ("Tcp?nSegs", "TcpInSegs", true),
            ("Tcp", "TcpInSegs", false),
            ("*Out*", "TcpInSegs", false),
            ("*", "", true),
            ("", "", true),
        ] {
            assert_eq!(is_match(pattern, name), is_meant, "{pattern} {name}");
        }
    }
}
