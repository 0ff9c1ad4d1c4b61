//! Where values come from, and which of them wins.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::declare::OptionSpec;
use crate::fstack;
use crate::ini::{self, FstackFile};
use crate::table::{OPTIONS, find_option};
use crate::value::Value;

/// The file that is read when none is named.
pub const SYSTEM_FILE: &str = "/etc/slipstack.toml";

/// A configuration file of more than this many bytes is refused.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Where a value was set, for messages.
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
        key: String,
    },
    Unreadable {
        file: PathBuf,
        reason: String,
    },
    Syntax {
        file: PathBuf,
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
            ConfigError::UnknownKey { file, key } => {
                write!(f, "{}: there is no option '{key}'", file.display())
            }
            ConfigError::Unreadable { file, reason } => {
                write!(f, "{} cannot be read: {reason}", file.display())
            }
            ConfigError::Syntax { file, reason } => {
                write!(f, "{} is not valid TOML: {reason}", file.display())
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

/// Values by option name, each with its source; every text in it has passed its kind's check.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    values: BTreeMap<&'static str, (String, Source)>,
    /// The F-Stack configuration that was read, if one was.
    fstack: Option<FstackFile>,
    /// A configuration file was read.
    has_file: bool,
}

/// The name of a file that is never opened: no configuration file.
const NO_FILE: &str = "/dev/null";

impl Layers {
    /// Reads environment and file. `variable` looks one variable up (a closure, so that tests and
    /// children with a prepared environment can pass their own). Empty variables count as unset.
    ///
    /// # Errors
    /// The first value that is not valid, or why the file cannot be used.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Layers, ConfigError> {
        let mut layers = Layers::default();
        let variable = |name: &str| variable(name).filter(|text| !text.is_empty());
        match variable("SLIPSTACK_CONFIG") {
            Some(file) => layers.read_file(Path::new(&file))?,
            None if Path::new(SYSTEM_FILE).exists() => layers.read_file(Path::new(SYSTEM_FILE))?,
            None => {}
        }
        layers.read_environment(variable)?;
        Ok(layers)
    }

    /// Like [`Layers::read`] with `--config FILE` given; `process` is the number of one of the
    /// processes that an F-Stack configuration describes.
    ///
    /// # Errors
    /// As [`Layers::read`].
    pub fn read_with_file(
        file: &Path,
        process: Option<u32>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Layers, ConfigError> {
        let mut layers = Layers::default();
        layers.read_file_for(file, process)?;
        layers.read_environment(|name| variable(name).filter(|text| !text.is_empty()))?;
        Ok(layers)
    }

    fn read_environment(
        &mut self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(), ConfigError> {
        for (option, name, text) in fstack::adapter_values(&variable)? {
            self.set(option, text, Source::Environment(name))?;
        }
        for option in OPTIONS {
            if let Some(text) = variable(option.env) {
                self.set(option.name, text, Source::Environment(option.env))?;
            }
        }
        Ok(())
    }

    /// Takes the values of a TOML file (`option = value`, in the root table) or of F-Stack's
    /// `config.ini`.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub fn read_file(&mut self, file: &Path) -> Result<(), ConfigError> {
        self.read_file_for(file, None)
    }

    fn read_file_for(&mut self, file: &Path, process: Option<u32>) -> Result<(), ConfigError> {
        self.has_file = true;
        if file == Path::new(NO_FILE) {
            return Ok(());
        }
        let text = read_text(file)?;
        if ini::is_fstack(file, &text) {
            let fstack = FstackFile::read(file)?;
            self.take_fstack(&fstack, process)?;
            self.fstack = Some(fstack);
            return Ok(());
        }
        self.read_toml(&text, file)
    }

    /// Returns the F-Stack configuration that was read, if one was.
    #[must_use]
    pub fn fstack(&self) -> Option<&FstackFile> {
        self.fstack.as_ref()
    }

    /// As [`Layers::read_file`] with the text of `file` already read.
    ///
    /// # Errors
    /// Why the text cannot be used.
    pub fn read_toml(&mut self, text: &str, file: &Path) -> Result<(), ConfigError> {
        let table: toml::Table =
            text.parse()
                .map_err(|error: toml::de::Error| ConfigError::Syntax {
                    file: file.to_owned(),
                    reason: error.message().to_owned(),
                })?;
        for (key, value) in table {
            let known = find_option(&key).filter(|option| option.is_in_file());
            let Some(option) = known else {
                return Err(ConfigError::UnknownKey {
                    file: file.to_owned(),
                    key,
                });
            };
            let text = toml_text(&value).ok_or_else(|| ConfigError::Value {
                option: option.name,
                source: Source::File(file.to_owned()),
                text: value.to_string(),
                must: "a string, a number or true or false".into(),
            })?;
            self.set(option.name, text, Source::File(file.to_owned()))?;
        }
        Ok(())
    }

    /// Sets one value, replacing an earlier one.
    ///
    /// # Errors
    /// The value is not valid for its option.
    pub fn set(&mut self, name: &str, text: String, source: Source) -> Result<(), ConfigError> {
        let Some(option) = find_option(name) else {
            return Err(ConfigError::Combination(format!(
                "there is no option '{name}'"
            )));
        };
        if let Err(must) = option.kind.check(&text) {
            return Err(ConfigError::Value {
                option: option.name,
                source,
                text,
                must,
            });
        }
        self.values.insert(option.name, (text, source));
        Ok(())
    }

    /// The text in force: set value, else default, else None.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.values.get(name) {
            Some((text, _)) => Some(text),
            None => find_option(name)
                .map(|option| option.default)
                .filter(|text| !text.is_empty()),
        }
    }

    /// The value in force, typed. Its text has been checked, except for a default.
    pub(crate) fn value<T: Value>(&self, name: &str) -> Result<T, ConfigError> {
        let Some(text) = self.text(name) else {
            return Ok(T::absent());
        };
        T::parse(text)
            .map_err(|must| ConfigError::Combination(format!("--{name} must be {must}: '{text}'")))
    }

    /// Where the text in force comes from.
    #[must_use]
    pub fn source(&self, name: &str) -> Source {
        self.values
            .get(name)
            .map_or(Source::Default, |(_, source)| source.clone())
    }

    /// The `SLIPSTACK_*` variables that hand exactly these values to a program.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let set = |option: &'static OptionSpec| {
            self.values
                .get(option.name)
                .map(|(text, _)| (option.env, text.clone()))
        };
        let handed = OPTIONS.iter().filter(|option| option.name != "config");
        let mut variables: Vec<_> = handed.filter_map(set).collect();
        if self.has_file {
            // Its values are among these, and the program may not be able to read it.
            let config = find_option("config").map(|option| (option.env, NO_FILE.to_owned()));
            variables.extend(config);
        }
        variables
    }
}

fn toml_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(is_set) => Some(is_set.to_string()),
        _ => None,
    }
}

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
