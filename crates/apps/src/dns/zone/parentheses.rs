//! Check that a master file's parentheses are closed (RFC 1035 5.1), which the parser requires.

/// Returns line and column, from 1, of the outermost parenthesis that is not closed at the end of
/// the text.
pub fn find_unclosed(text: &[u8]) -> Option<(usize, usize)> {
    let (mut line, mut line_start) = (1, 0);
    let (mut depth, mut opened) = (0_usize, (0, 0));
    let (mut is_quoted, mut is_comment, mut is_escaped) = (false, false, false);
    for (at, byte) in text.iter().enumerate() {
        let was_escaped = std::mem::take(&mut is_escaped);
        match byte {
            b'\n' => {
                (line, line_start) = (line + 1, at + 1);
                is_comment = false;
            }
            _ if is_comment || was_escaped => {}
            b'\\' => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b';' => is_comment = true,
            b'(' => {
                if depth == 0 {
                    opened = (line, at - line_start + 1);
                }
                depth += 1;
            }
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    (depth > 0).then_some(opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parenthesis_that_is_not_closed_is_found() {
        assert_eq!(
            find_unclosed(b"a A 1.2.3.4\n*.w TXT \"x\"(y\nb\n"),
            Some((2, 12))
        );
        assert_eq!(find_unclosed(b"(a (b)\n"), Some((1, 1)));
    }

    #[test]
    fn closed_quoted_escaped_and_commented_parentheses_are_no_error() {
        for text in [
            "a SOA b c (\n1 2 ; (\n3 4 5 )\n",
            "a TXT \"(\"\n",
            "a\\( A 1.2.3.4\n",
            "; (\n",
            "",
        ] {
            assert_eq!(find_unclosed(text.as_bytes()), None, "{text}");
        }
    }
}
