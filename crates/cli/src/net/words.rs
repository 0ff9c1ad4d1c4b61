//! The words of a command, taken from the front.

use crate::failure::Failure;

#[derive(Clone)]
pub struct Words<'a> {
    left: &'a [String],
    /// Name of the command, for its refusals.
    command: &'static str,
}

impl<'a> Words<'a> {
    pub fn new(command: &'static str, words: &'a [String]) -> Words<'a> {
        Words {
            left: words,
            command,
        }
    }

    pub fn peek(&self) -> Option<&'a str> {
        self.left.first().map(String::as_str)
    }

    pub fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.left.split_first()?;
        self.left = rest;
        Some(first)
    }

    /// Takes the next word if it is this one.
    pub fn take(&mut self, word: &str) -> bool {
        let is_next = self.peek() == Some(word);
        if is_next {
            self.next();
        }
        is_next
    }

    /// The value of a word that wants one.
    pub fn value(&mut self, of: &str) -> Result<&'a str, Failure> {
        let missing = || Failure::new(format!("{}: {of} wants a value", self.command));
        self.left.first().ok_or_else(missing)?;
        self.next().ok_or_else(|| Failure::new("no value"))
    }

    pub fn parsed<T: std::str::FromStr>(&mut self, of: &str) -> Result<T, Failure> {
        let text = self.value(of)?;
        text.parse().map_err(|_| self.wrong(of, text))
    }

    pub fn wrong(&self, of: &str, text: &str) -> Failure {
        Failure::new(format!("{}: {of} cannot be \"{text}\"", self.command))
    }

    pub fn unknown(&self, word: &str) -> Failure {
        Failure::new(format!("{}: what is \"{word}\"?", self.command))
    }

    pub fn missing(&self, what: &str) -> Failure {
        Failure::new(format!("{}: {what} is missing", self.command))
    }

    /// Returns whether the object or what is to be done with it is "help".
    pub fn is_help(&self) -> bool {
        self.left.iter().take(2).any(|word| word == "help")
    }

    /// Returns whether a word is among those that are left.
    pub fn has(&self, word: &str) -> bool {
        self.left.iter().any(|it| it == word)
    }

    /// All words that are left must have been taken.
    pub fn end(&self) -> Result<(), Failure> {
        match self.peek() {
            Some(word) => Err(self.unknown(word)),
            None => Ok(()),
        }
    }
}
