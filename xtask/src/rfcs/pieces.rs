//! A source file in pieces: each comment as one text, however many lines it has, and each other
//! line by itself.

pub struct Piece {
    /// Position in the file at which it begins.
    pub at: usize,
    pub text: String,
}

const MARKS: &[&str] = &["///", "//!", "//", "#"];

/// A comment ends where its mark changes and at a line without words.
pub fn split(text: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut current: Option<&str> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let comment = find_comment(line);
        match (comment, current) {
            (Some((mark, words)), Some(before)) if mark == before && !words.is_empty() => {
                if let Some(piece) = pieces.last_mut() {
                    piece.text.push(' ');
                    piece.text.push_str(words);
                }
            }
            (Some((_, words)), _) => pieces.push(Piece {
                at,
                text: words.to_owned(),
            }),
            (None, _) => pieces.push(Piece {
                at,
                text: line.trim().to_owned(),
            }),
        }
        current = comment.and_then(|(mark, words)| (!words.is_empty()).then_some(mark));
        at += line.len();
    }
    pieces
}

fn find_comment(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim();
    if line.starts_with("#[") || line.starts_with("#!") {
        return None;
    }
    MARKS
        .iter()
        .find_map(|mark| Some((*mark, line.strip_prefix(mark)?.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        split(source).into_iter().map(|piece| piece.text).collect()
    }

    #[test]
    fn a_comment_is_one_text_up_to_its_end_another_mark_or_an_empty_line() {
        let source = "/// one\n/// two\n///\n/// three\n// four\n    // five\nlet six = 6;\n";
        let expected = ["one two", "", "three", "four five", "let six = 6;"];
        assert_eq!(texts(source), expected);
    }

    #[test]
    fn an_attribute_is_no_comment() {
        assert_eq!(texts("# one\n#[cfg(test)]\n"), ["one", "#[cfg(test)]"]);
    }

    #[test]
    fn a_comment_has_its_offset_in_the_file() {
        let places: Vec<_> = split("a\n// b\n// c\nd\n").iter().map(|p| p.at).collect();
        assert_eq!(places, [0, 2, 12]);
    }
}
