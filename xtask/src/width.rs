//! The width of lines in every language of the repository.
//!
//! rustfmt leaves strings and the bodies of macros as they are, so Rust's lines count as well. A
//! line is excused for one word that does not fit: a URL, or a string without a space.

use std::path::Path;

const COLUMNS_MAX: usize = 100;
/// Words from this length on excuse their line: no line break makes them shorter.
const UNBREAKABLE_LEN: usize = 60;

enum Language {
    /// Tables in comments do not count.
    Rust,
    /// C, Python, shell and make: each line counts.
    Code,
    /// Tables and fenced blocks do not count.
    Markdown,
}

pub fn check(name: &str, text: &str, findings: &mut Vec<String>) {
    let Some(language) = language_of(name, text) else {
        return;
    };
    let mut is_fenced = false;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let is_fence = matches!(language, Language::Markdown) && trimmed.starts_with("```");
        is_fenced ^= is_fence;
        let is_looked_at = match language {
            Language::Rust => !(trimmed.starts_with("//") && is_table(trimmed)),
            Language::Code => true,
            Language::Markdown => !is_fenced && !is_fence && !is_table(trimmed),
        };
        let columns = line.chars().count();
        if is_looked_at && columns > COLUMNS_MAX && !is_unbreakable(line) {
            let number = number + 1;
            findings.push(format!(
                "{name}:{number}: a line of {columns} columns, at most {COLUMNS_MAX}"
            ));
        }
    }
}

fn language_of(name: &str, text: &str) -> Option<Language> {
    let path = Path::new(name);
    match path.extension().and_then(|it| it.to_str()) {
        Some("rs") => Some(Language::Rust),
        Some("c" | "h" | "py" | "sh") => Some(Language::Code),
        Some("md") => Some(Language::Markdown),
        Some(_) => None,
        None => (path.ends_with("Makefile") || text.starts_with("#!")).then_some(Language::Code),
    }
}

fn is_table(trimmed: &str) -> bool {
    trimmed.trim_start_matches(['/', '!', ' ']).starts_with('|')
}

fn is_unbreakable(line: &str) -> bool {
    line.split_whitespace()
        .any(|word| word.contains("://") || word.chars().count() >= UNBREAKABLE_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(name: &str, line: &str) -> bool {
        let mut findings = Vec::new();
        check(name, line, &mut findings);
        !findings.is_empty()
    }

    #[test]
    fn lines_of_every_language_end_at_column_100() {
        let wide = "word ".repeat(21);
        for name in ["a.c", "a.h", "a.py", "a.sh", "a.md", "Makefile"] {
            assert!(is_refused(name, &wide), "{name}");
            assert!(!is_refused(name, &wide[..100]), "{name}");
        }
        assert!(is_refused("scripts/a", &format!("#!/bin/sh\n{wide}")));
        assert!(!is_refused("a.json", &wide));
    }

    #[test]
    fn comments_strings_and_code_of_rust_count_but_tables_in_comments_do_not() {
        let wide = "word ".repeat(21);
        assert!(is_refused("a.rs", &format!("    /// {wide}")));
        assert!(is_refused("a.rs", &format!("    \"{wide}\"")));
        assert!(is_refused("a.rs", &wide));
        assert!(!is_refused("a.rs", &format!("//! | {wide}")));
    }

    #[test]
    fn tables_and_fenced_blocks_of_markdown_may_be_wide() {
        let wide = "word ".repeat(21);
        assert!(!is_refused("a.md", &format!("| {wide}")));
        assert!(!is_refused("a.md", &format!("```text\n{wide}\n```\n")));
        assert!(is_refused("a.md", &format!("```text\n```\n{wide}\n")));
    }

    #[test]
    fn a_word_that_cannot_be_broken_excuses_its_line() {
        let text = "word ".repeat(18);
        assert!(!is_refused("a.md", &format!("{text} https://a.example/b")));
        assert!(!is_refused(
            "a.py",
            &format!("{text} \"{}\"", "x".repeat(60))
        ));
        assert!(is_refused(
            "a.py",
            &format!("{text} \"{}\"", "x".repeat(40))
        ));
    }
}
