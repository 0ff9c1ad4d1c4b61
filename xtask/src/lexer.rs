//! Just enough of Rust's lexical structure to count braces and find words: comments, strings and
//! character literals are blanked out, line breaks stay.

/// The text with the insides of comments, strings and characters replaced by spaces.
pub fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let len = literal_len(bytes, at);
        if len == 0 {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        let end = (at + len).min(bytes.len());
        out.extend(
            bytes[at..end]
                .iter()
                .map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }),
        );
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Length of the comment, string or character that starts at `at`; 0 if none does.
fn literal_len(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    match rest[0] {
        b'/' if rest.starts_with(b"//") => rest
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(rest.len()),
        b'/' if rest.starts_with(b"/*") => block_comment_len(rest),
        b'"' => string_len(rest),
        b'r' if !follows_word(bytes, at) => raw_string_len(rest),
        b'\'' => char_len(rest),
        _ => 0,
    }
}

fn follows_word(bytes: &[u8], at: usize) -> bool {
    // `br"…"` and `cr"…"` are raw strings too.
    let previous = at.checked_sub(1).map(|before| bytes[before]);
    previous.is_some_and(|byte| is_word(byte) && byte != b'b' && byte != b'c')
}

fn block_comment_len(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string_len(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string_len(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let mut close = vec![b'"'];
    close.extend(std::iter::repeat_n(b'#', hashes));
    let body = 2 + hashes;
    let end = rest[body..]
        .windows(close.len())
        .position(|window| window == close);
    end.map_or(rest.len(), |end| body + end + close.len())
}

/// A character literal; a lifetime has length 0.
fn char_len(rest: &[u8]) -> usize {
    match rest.get(1) {
        Some(b'\\') => {
            let end = rest.iter().skip(3).position(|byte| *byte == b'\'');
            end.map_or(0, |end| end + 4)
        }
        Some(first) => {
            let width = match first {
                0..=0x7f => 1,
                0x80..=0xdf => 2,
                0xe0..=0xef => 3,
                _ => 4,
            };
            if rest.get(1 + width) == Some(&b'\'') {
                width + 2
            } else {
                0
            }
        }
        None => 0,
    }
}

pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Positions of `word` standing alone in blanked text.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            let is_start = *at == 0 || !is_word(bytes[at - 1]);
            let after = bytes.get(at + word.len());
            is_start && !after.is_some_and(|byte| is_word(*byte))
        })
}

/// A function in blanked text: where its `fn` stands and where its body ends.
pub struct Function {
    pub name: String,
    pub start: usize,
    pub end: usize,
}

pub fn functions(text: &str) -> Vec<Function> {
    words(text, "fn")
        .filter_map(|start| function_at(text, start))
        .collect()
}

fn function_at(text: &str, start: usize) -> Option<Function> {
    let after = &text[start + 2..];
    let name: String = after
        .trim_start()
        .bytes()
        .take_while(|b| is_word(*b))
        .map(char::from)
        .collect();
    if name.is_empty() || !after.starts_with(char::is_whitespace) {
        return None;
    }
    let mut nesting = 0_i32;
    let mut depth = 0_i32;
    for (offset, byte) in after.bytes().enumerate() {
        match byte {
            b'(' | b'[' => nesting += 1,
            b')' | b']' => nesting -= 1,
            b';' if depth == 0 && nesting == 0 => return None,
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 && nesting == 0 {
                    return Some(Function {
                        name,
                        start,
                        end: start + 2 + offset,
                    });
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_are_blanked() {
        let text = "a /* { /* } */ */ \"{\\\"{\" r#\"{\"{\"# '{' '\\'' b // {\n'a c";
        let blanked = blank(text);
        assert_eq!(blanked.len(), text.len());
        assert!(!blanked.contains('{') && !blanked.contains('}'));
        assert!(blanked.contains('a') && blanked.contains('b') && blanked.ends_with("\n'a c"));
    }

    #[test]
    fn functions_are_found_with_their_ends() {
        let text = "trait T { fn none(&self) -> [u8; 4]; fn some() { if x { y } } }\nfn last<F: \
            Fn(u8) -> u8>() {}";
        let found: Vec<String> = functions(text)
            .into_iter()
            .map(|function| function.name)
            .collect();
        assert_eq!(found, ["some", "last"]);
    }
}
