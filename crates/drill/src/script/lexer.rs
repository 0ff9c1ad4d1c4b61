//! Statements without comments, and the words of one.

use super::ScriptError;

/// A statement: the text between two line ends outside any bracket.
#[derive(Debug, PartialEq, Eq)]
pub struct Statement {
    pub line: usize,
    pub text: String,
}

/// Cuts a script into statements; comments (`//`, `/* */`, `#` at the beginning of a line) go.
pub fn statements(text: &str) -> Result<Vec<Statement>, ScriptError> {
    let text = without_comments(text);
    let mut found: Vec<Statement> = Vec::new();
    let mut is_open = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        match found.last_mut() {
            Some(statement) if is_open => {
                statement.text.push('\n');
                statement.text.push_str(line);
            }
            _ => found.push(Statement {
                line: number + 1,
                text: line.trim().to_owned(),
            }),
        }
        is_open = found
            .last()
            .is_some_and(|statement| is_unfinished(&statement.text));
    }
    match found.last() {
        Some(statement) if is_open => Err(ScriptError {
            line: statement.line,
            reason: "a bracket is not closed".to_owned(),
        }),
        _ => Ok(found),
    }
}

fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let at_line_start = out.is_empty() || out.ends_with('\n');
        if let Some(quoted) = quoted(rest) {
            out.push_str(quoted);
            rest = &rest[quoted.len()..];
        } else if rest.starts_with("//") || (at_line_start && rest.starts_with('#')) {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if rest.starts_with("/*") {
            let end = rest.find("*/").map_or(rest.len(), |at| at + 2);
            out.extend(rest[..end].chars().filter(|c| *c == '\n'));
            rest = &rest[end..];
        } else {
            let next = rest.chars().next().map_or(1, char::len_utf8);
            out.push_str(&rest[..next]);
            rest = &rest[next..];
        }
    }
    out
}

/// A piece at the beginning of `text` in which nothing is a comment.
fn quoted(text: &str) -> Option<&str> {
    let (open, close) = [("\"", "\""), ("`", "`"), ("%{", "}%")]
        .into_iter()
        .find(|(open, _)| text.starts_with(open))?;
    let end = text[open.len()..].find(close)?;
    Some(&text[..open.len() + end + close.len()])
}

fn is_unfinished(text: &str) -> bool {
    let mut depth = 0i32;
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if rest.starts_with("%{") || next == '`' || next == '"' {
            match quoted(rest) {
                Some(quoted) => {
                    rest = &rest[quoted.len()..];
                    continue;
                }
                None => return true,
            }
        }
        match next {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        rest = &rest[next.len_utf8()..];
    }
    depth > 0
}

/// Reads one statement from left to right.
pub struct Cursor<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str, line: usize) -> Self {
        Self {
            rest: text.trim_start(),
            line,
        }
    }

    pub fn fail<T>(&self, reason: impl Into<String>) -> Result<T, ScriptError> {
        Err(ScriptError {
            line: self.line,
            reason: reason.into(),
        })
    }

    pub fn rest(&self) -> &'a str {
        self.rest
    }

    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn skip(&mut self, len: usize) {
        self.rest = self.rest[len..].trim_start();
    }

    /// Takes `word` if it comes next.
    pub fn take(&mut self, word: &str) -> bool {
        let is_next = self.rest.starts_with(word);
        if is_next {
            self.skip(word.len());
        }
        is_next
    }

    /// Takes `word` if it comes next and ends there.
    pub fn take_word(&mut self, word: &str) -> bool {
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        self.rest.strip_prefix(word).is_some_and(ends) && self.take(word)
    }

    pub fn expect(&mut self, word: &str) -> Result<(), ScriptError> {
        match self.take(word) {
            true => Ok(()),
            false => self.fail(format!("expected `{word}` before `{}`", self.rest)),
        }
    }

    /// The longest beginning of characters that `is_part` accepts; empty if there is none.
    pub fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let word = &self.rest[..end];
        self.skip(end);
        word
    }

    pub fn name(&mut self) -> Option<&'a str> {
        let is_name = self
            .rest
            .starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        is_name.then(|| self.take_while(|c| c.is_ascii_alphanumeric() || c == '_'))
    }

    /// A decimal, octal (0…) or hexadecimal (0x…) number, perhaps with a sign.
    pub fn number(&mut self) -> Result<i64, ScriptError> {
        let is_negative = self.take("-");
        let word = self.take_while(|c| c.is_ascii_alphanumeric());
        let value = match word.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16),
            None if word.len() > 1 && word.starts_with('0') => i64::from_str_radix(&word[1..], 8),
            None => word.parse(),
        };
        match value {
            Ok(value) if is_negative => Ok(-value),
            Ok(value) => Ok(value),
            Err(_) => self.fail(format!("`{word}` is not a number")),
        }
    }

    pub fn unsigned<T: TryFrom<i64>>(&mut self) -> Result<T, ScriptError> {
        let value = self.number()?;
        T::try_from(value).or_else(|_| self.fail(format!("{value} is out of range")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(script: &str) -> Vec<String> {
        statements(script)
            .unwrap()
            .into_iter()
            .map(|it| it.text)
            .collect()
    }

    #[test]
    fn comments_are_removed_and_open_brackets_join_lines() {
        let script = "# one\n0 bind(3, // local\n  ..., 4) = 0\n/* two\nlines */ +0 `a // b`\n";
        assert_eq!(texts(script), ["0 bind(3,\n  ..., 4) = 0", "+0 `a // b`"]);
    }

    #[test]
    fn code_may_run_over_lines() {
        assert_eq!(
            texts("+0 %{ assert a == 1\nassert b == 2 }%\n+1 x() = 0").len(),
            2
        );
        assert!(statements("+0 f(1").is_err());
    }
}
