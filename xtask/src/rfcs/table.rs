//! The RFCs and their sections that bind an implementation.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    rfc: Vec<Rfc>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rfc {
    pub number: u32,
    pub title: String,
    /// Section and its title.
    #[serde(default)]
    pub sections: BTreeMap<Section, String>,
    /// Section and the reason why it is not implemented, wholly or in part.
    #[serde(default)]
    pub left_out: BTreeMap<Section, String>,
}

/// A section's number, in the order of the document: 3.9 comes before 3.10.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub struct Section(Vec<Part>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u32),
    Letter(String),
}

impl From<String> for Section {
    fn from(text: String) -> Self {
        Self::parse(&text)
    }
}

impl Section {
    pub fn parse(text: &str) -> Self {
        let part = |word: &str| match word.parse() {
            Ok(number) => Part::Number(number),
            Err(_) => Part::Letter(word.to_owned()),
        };
        Self(text.split('.').map(part).collect())
    }

    /// The sections between `self` and a later one beside it.
    pub fn up_to(&self, last: &Self) -> Vec<Self> {
        match (self.0.split_last(), last.0.split_last()) {
            (Some((Part::Number(first), above)), Some((Part::Number(last), beside)))
                if above == beside =>
            {
                let with = |number| [above, &[Part::Number(number)]].concat();
                (first + 1..*last)
                    .map(|number| Self(with(number)))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns whether `self` is `other` or a part of it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl std::fmt::Display for Section {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            if index > 0 {
                out.write_str(".")?;
            }
            match part {
                Part::Number(number) => write!(out, "{number}")?,
                Part::Letter(letter) => out.write_str(letter)?,
            }
        }
        Ok(())
    }
}

pub fn load(path: &Path) -> Result<Vec<Rfc>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
    text.and_then(|text| parse(&text))
        .map_err(|error| format!("{}: {error}", path.display()))
}

pub fn parse(text: &str) -> Result<Vec<Rfc>, String> {
    let mut table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
    table.rfc.sort_by_key(|rfc| rfc.number);
    Ok(table.rfc)
}
