//! Errors: values that cannot be used, files that cannot be read, and the source of each.

use std::fmt;
use std::path::{Path, PathBuf};

/// A configuration file of more than this many bytes is refused.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Source of a value, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Default,
    File(PathBuf),
    /// A line of an F-Stack configuration.
    Line(PathBuf, usize),
    /// Name of the variable.
    Environment(&'static str),
    CommandLine,
}

/// A value that cannot be used, or a file that cannot be read. Displayed as one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    Value {
        option: &'static str,
        source: Source,
        text: String,
        must: String,
    },
    UnknownKey {
        file: PathBuf,
        /// 0: not found.
        line: usize,
        key: String,
        /// The known key that is most like it.
        nearest: String,
    },
    Unreadable {
        file: PathBuf,
        reason: String,
    },
    Syntax {
        file: PathBuf,
        /// 0: not known.
        line: usize,
        reason: String,
    },
    /// A line of an F-Stack configuration that cannot be used; 0: the file as a whole.
    Ini {
        file: PathBuf,
        line: usize,
        reason: String,
    },
    /// Two options that need or exclude each other.
    Combination(String),
}

impl ConfigError {
    /// Names the line of a wrong value.
    pub(crate) fn in_line(mut self, line: Source) -> ConfigError {
        if let ConfigError::Value { source, .. } = &mut self {
            *source = line;
        }
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Value {
                option,
                source,
                text,
                must,
            } => match source {
                Source::Environment(name) => write!(f, "{name} is '{text}' but must be {must}"),
                Source::File(file) => {
                    write!(
                        f,
                        "{}: '{option}' is '{text}' but must be {must}",
                        file.display()
                    )
                }
                Source::Line(file, line) => {
                    write!(
                        f,
                        "{} line {line}: '{option}' is '{text}' but must be {must}",
                        file.display()
                    )
                }
                Source::Default | Source::CommandLine => {
                    write!(f, "--{option} is '{text}' but must be {must}")
                }
            },
            ConfigError::UnknownKey {
                file,
                line,
                key,
                nearest,
            } => {
                let file = file.display();
                write!(
                    f,
                    "{file} line {line}: there is no option '{key}'; the nearest is '{nearest}'"
                )
            }
            ConfigError::Unreadable { file, reason } => {
                write!(f, "{} cannot be read: {reason}", file.display())
            }
            ConfigError::Syntax { file, line, reason } => {
                write!(
                    f,
                    "{} line {line} is not valid TOML: {reason}",
                    file.display()
                )
            }
            ConfigError::Ini {
                file,
                line: 0,
                reason,
            } => {
                write!(f, "{}: {reason}", file.display())
            }
            ConfigError::Ini { file, line, reason } => {
                write!(f, "{} line {line}: {reason}", file.display())
            }
            ConfigError::Combination(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Reads a configuration file, whose length is limited.
pub(crate) fn read_text(file: &Path) -> Result<String, ConfigError> {
    let unreadable = |reason: String| ConfigError::Unreadable {
        file: file.to_owned(),
        reason,
    };
    let meta = std::fs::metadata(file).map_err(|error| unreadable(plain_io(&error)))?;
    if meta.len() > FILE_LEN_MAX {
        return Err(unreadable(format!("it has more than {FILE_LEN_MAX} bytes")));
    }
    std::fs::read_to_string(file).map_err(|error| unreadable(plain_io(&error)))
}

fn plain_io(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        std::io::ErrorKind::InvalidData => "it is not UTF-8 text".into(),
        _ => error.to_string(),
    }
}
