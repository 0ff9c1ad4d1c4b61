//! Wording of comments and documents: openings of doc comments that name no subject, and words that
//! have a plain counterpart.

/// A doc comment that begins so does not name its subject.
const OPENINGS: &[&str] = &[
    "What ", "Of ", "Who ", "Whose ", "Whoever ", "The same", "Where ", "How ", "Why ", "When ",
    "And ", "Or ", "But ", "This ", "That ", "These ", "Those ", "Both ", "There ", "Not ", "It ",
    "Its ", "They ", "Their ", "Such ", "So ", "Even ", "Neither ", "Now ", "Then ",
];

/// Spelt in two halves so that this file passes its own check.
const HOUSE_WORDS: &[(&str, &str)] = &[
    (concat!("an", "ew"), "again"),
    (concat!("custo", "dian"), "keeper"),
    (concat!("est", "ate"), "resources"),
    (concat!("mou", "rn"), "a plain verb"),
    (concat!("thr", "ift"), "a plain noun"),
];

pub fn check(name: &str, text: &str, findings: &mut Vec<String>) {
    let is_rust = name.ends_with(".rs");
    let is_prose = [".md", ".py", ".c", ".h", ".sh"]
        .iter()
        .any(|extension| name.ends_with(extension));
    let mut was_doc = false;
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let doc = doc_of(line).filter(|_| is_rust);
        if let Some(doc) = doc.filter(|_| !was_doc)
            && let Some(opening) = OPENINGS.iter().find(|it| doc.starts_with(**it))
        {
            let opening = opening.trim_end();
            findings.push(format!(
                "{name}:{number}: a doc comment that begins with `{opening}` names no subject"
            ));
        }
        // A paragraph of its own is an opening too.
        was_doc = doc.is_some_and(|doc| !doc.is_empty());
        for (word, better) in HOUSE_WORDS.iter().filter(|_| is_rust || is_prose) {
            if has_word(line, word) {
                findings.push(format!("{name}:{number}: `{word}`: say {better}"));
            }
        }
    }
}

fn doc_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let doc = line
        .strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))?;
    Some(doc.strip_prefix(' ').unwrap_or(doc))
}

fn has_word(line: &str, word: &str) -> bool {
    let is_letter = |it: Option<char>| it.is_some_and(char::is_alphabetic);
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !is_letter(before.chars().next_back()) && !is_letter(after.chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, text: &str) -> usize {
        let mut findings = Vec::new();
        check(name, text, &mut findings);
        findings.len()
    }

    #[test]
    fn a_doc_comment_names_its_subject() {
        assert_eq!(count("a.rs", "/// Whose it is.\nfn a() {}"), 1);
        assert_eq!(count("a.rs", "//! Title.\n//!\n//! What it does."), 1);
        assert_eq!(count("a.rs", "    /// The same, but slower."), 1);
        assert_eq!(count("a.rs", "    /// How long it takes."), 1);
        assert_eq!(count("a.rs", "/// Title.\n///\n/// It does more."), 1);
        assert_eq!(count("a.rs", "/// Both of them."), 1);
        assert_eq!(count("a.rs", "/// Itself a name."), 0);
        assert_eq!(count("a.rs", "/// The owner of it.\n/// What follows."), 0);
        assert_eq!(count("a.rs", "// What follows is not documentation."), 0);
        assert_eq!(count("a.md", "/// Whose it is."), 0);
    }

    #[test]
    fn house_words_are_found_as_words_alone() {
        let (word, _) = HOUSE_WORDS[2];
        assert_eq!(count("a.md", &format!("An {word} of ours.")), 1);
        assert_eq!(count("a.rs", &format!("fn real_{word}_of() {{}}")), 1);
        assert_eq!(count("a.rs", &format!("struct Device{word}s;")), 0);
        assert_eq!(count("a.json", word), 0);
    }
}
