//! Sources of values, and their precedence.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::declare::OptionSpec;
use crate::error::{ConfigError, Source, read_text};
use crate::fstack;
use crate::ini::{self, FstackFile};
use crate::kind::Kind;
use crate::nearest::nearest;
use crate::profile;
use crate::table::{OPTION, OPTIONS, find_option};

/// The default file.
pub const SYSTEM_FILE: &str = "/etc/slipstack.toml";

/// Values by option name, each with its source; every text in it has passed its kind's check.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    values: BTreeMap<&'static str, (String, Source)>,
    /// The F-Stack configuration that was read, if one was.
    fstack: Option<FstackFile>,
    /// A configuration file was read.
    has_file: bool,
    /// The ports of an F-Stack configuration are DPDK's.
    is_for_dpdk: bool,
}

/// The kind of device whose arguments are in F-Stack's configuration.
const DPDK: &str = "dpdk";

/// Tables of a configuration file that are no options, but a server's own.
const SECTIONS: &[&str] = &["dns"];

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
        layers.is_for_dpdk = asks_for_dpdk(&variable);
        match variable(OPTION.config.env) {
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
        let variable = |name: &str| variable(name).filter(|text| !text.is_empty());
        layers.is_for_dpdk = asks_for_dpdk(&variable);
        layers.read_file_for(file, process)?;
        layers.read_environment(variable)?;
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
            let fstack = match self.is_for_dpdk {
                true => FstackFile::read_for_dpdk(file)?,
                false => FstackFile::read(file)?,
            };
            self.take_fstack(&fstack, process)?;
            self.fstack = Some(fstack);
            return Ok(());
        }
        self.read_toml(&text, file)?;
        for part in drop_ins(file)? {
            self.read_toml(&read_text(&part)?, &part)?;
        }
        Ok(())
    }

    /// Uses the profile's values for options that nothing else has set.
    ///
    /// # Errors
    /// There is none of this name, or its file cannot be used.
    pub fn take_profile(&mut self) -> Result<(), ConfigError> {
        let Some(name) = self.text(OPTION.profile.name).map(str::to_owned) else {
            return Ok(());
        };
        let (text, file) = profile::find(&name)?;
        let mut below = Layers::default();
        below.read_toml(&text, &file)?;
        for (option, value) in below.values {
            self.values.entry(option).or_insert(value);
        }
        Ok(())
    }

    /// Takes the file's values; `process` is the number of one of its processes, which gets its
    /// core of `lcore_mask` and its log file; `None`: a program that has all of the cores.
    ///
    /// # Errors
    /// There is no such process, or a value is not valid.
    pub fn take_fstack(
        &mut self,
        ini: &FstackFile,
        process: Option<u32>,
    ) -> Result<(), ConfigError> {
        for given in &ini.given {
            let source = Source::Line(ini.file.clone(), given.line);
            self.set(given.option, given.text.clone(), source)?;
        }
        let source = || Source::File(ini.file.clone());
        let Some(process) = process else {
            let cores: Vec<String> = ini.cores.iter().map(usize::to_string).collect();
            return match cores.as_slice() {
                [] => Ok(()),
                cores => self.set(OPTION.cores.name, cores.join(","), source()),
            };
        };
        if let Some(prefix) = &ini.log_prefix {
            self.set(
                OPTION.log_file.name,
                format!("{prefix}{process}.log"),
                source(),
            )?;
        }
        match ini.cores.get(process as usize) {
            Some(core) => self.set(OPTION.cores.name, core.to_string(), source()),
            None if ini.cores.is_empty() && process == 0 => Ok(()),
            None => Err(ConfigError::Combination(format!(
                "{}: lcore_mask has {} bits, so there is no process {process} (they count from 0)",
                ini.file.display(),
                ini.processes()
            ))),
        }
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
                    line: error.span().map_or(0, |span| line_at(text, span.start)),
                    reason: error.message().to_owned(),
                })?;
        for (key, value) in table {
            let source = || Source::Line(file.to_owned(), line_of(text, &key));
            if value.is_table() && SECTIONS.contains(&key.as_str()) {
                continue;
            }
            let known = find_option(&key).filter(|option| option.is_in_file());
            let Some(option) = known else {
                let known = OPTIONS.iter().filter(|option| option.is_in_file());
                let nearest = nearest(&key, known.map(|option| option.name));
                return Err(ConfigError::UnknownKey {
                    file: file.to_owned(),
                    line: line_of(text, &key),
                    nearest: nearest.unwrap_or_default().to_owned(),
                    key,
                });
            };
            let (given, must) = match option.kind {
                Kind::Filter => (
                    filter_text(&value),
                    "a path, or ipfw commands: rule = \"add …\" in each [[filter]]",
                ),
                kind => (
                    toml_text(&value, kind.separator()),
                    "a string, a number or true or false",
                ),
            };
            let given = given.ok_or_else(|| ConfigError::Value {
                option: option.name,
                source: source(),
                text: value.to_string(),
                must: must.into(),
            })?;
            let set = self.set(option.name, given, Source::File(file.to_owned()));
            set.map_err(|error| error.in_line(source()))?;
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
        let has_argument = |(text, _): &(String, Source)| text.starts_with("dpdk:");
        if (option.name, text.as_str()) == (OPTION.device.name, DPDK)
            && self
                .values
                .get(OPTION.device.name)
                .is_some_and(has_argument)
        {
            // Its arguments are those of the file.
            return Ok(());
        }
        self.values.insert(option.name, (text, source));
        Ok(())
    }

    /// The text in force: set value, else default, else None.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        let default = || {
            let option = find_option(name)?;
            (!option.default.is_empty()).then_some(option.default)
        };
        self.set_text(name).or_else(default)
    }

    /// The text that was set.
    pub(crate) fn set_text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|(text, _)| text.as_str())
    }

    /// Source of the text in force.
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
        // The values of both are among these.
        let is_handed = |option: &&OptionSpec| {
            ![OPTION.config.name, OPTION.profile.name].contains(&option.name)
        };
        let handed = OPTIONS.iter().filter(is_handed);
        let mut variables: Vec<_> = handed.filter_map(set).collect();
        if self.has_file {
            // Its values are among these, and the program may not be able to read it.
            variables.push((OPTION.config.env, NO_FILE.to_owned()));
        }
        variables
    }
}

/// The number of the line that a byte of the text is in, from 1.
fn line_at(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    before.filter(|byte| **byte == b'\n').count() + 1
}

/// The number of the first line that gives a key, or begins its table; 0: none is found.
fn line_of(text: &str, key: &str) -> usize {
    let is_of_key = |line: &str| {
        let line = line.trim_start().trim_start_matches(['[', ' ', '"', '\'']);
        let rest = line.strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with(['=', ']', '.', '"', '\'']))
    };
    text.lines().position(is_of_key).map_or(0, |at| at + 1)
}

/// The files `NAME.d/*.toml` beside `NAME.toml`, in the order of their names.
fn drop_ins(file: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let folder = file.with_extension("d");
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(ConfigError::Unreadable {
                file: folder,
                reason: error.to_string(),
            });
        }
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut parts: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    parts.sort();
    Ok(parts)
}

/// Returns whether the environment, in which a command has its own `--device` too, requests DPDK's
/// ports.
fn asks_for_dpdk(variable: &impl Fn(&str) -> Option<String>) -> bool {
    let device = variable(OPTION.device.env).unwrap_or_default();
    device.split(':').next() == Some(DPDK)
}

/// A path, commands in a list, or tables with one in each.
fn filter_text(value: &toml::Value) -> Option<String> {
    let toml::Value::Array(all) = value else {
        return toml_text(value, None);
    };
    let rule = |one: &toml::Value| match one {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Table(table) if table.len() == 1 => {
            Some(table.get("rule")?.as_str()?.to_owned())
        }
        _ => None,
    };
    let rules: Option<Vec<String>> = all.iter().map(rule).collect();
    Some(rules?.join("\n"))
}

/// `separator`: of the parts of a value that may be a list.
fn toml_text(value: &toml::Value, separator: Option<&str>) -> Option<String> {
    match value {
        toml::Value::Array(parts) => {
            let texts = parts.iter().map(|part| toml_text(part, None));
            Some(texts.collect::<Option<Vec<_>>>()?.join(separator?))
        }
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(is_set) => Some(is_set.to_string()),
        _ => None,
    }
}
