//! Options of the table as arguments of a command, and the given values.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use slipstack_config::{ConfigError, Kind, Layers, OPTION, OPTIONS, OptionSpec, Scope, Source};

use crate::given_texts::given;

/// Folder of the files that instances read by their names.
const INSTANCE_FILES: &str = "/etc/slipstack";

/// Adds the options of these scopes to a command.
pub fn with_options(command: Command, scopes: &[Scope]) -> Command {
    OPTIONS
        .iter()
        .filter(|option| scopes.contains(&option.scope))
        .fold(command, |command, option| {
            let argument = match option.name == OPTION.interface.name {
                true => argument(option).action(ArgAction::Append),
                false => argument(option),
            };
            // A command's own letter comes before an option's (htstress has -c).
            let is_taken = argument.get_short().is_some_and(|short| {
                let mut others = command.get_arguments();
                others.any(|other| other.get_short() == Some(short))
            });
            command.arg(if is_taken {
                argument.short(None)
            } else {
                argument
            })
        })
}

/// The argument of one option.
pub fn argument(option: &'static OptionSpec) -> Arg {
    let default = if option.default.is_empty() {
        String::new()
    } else {
        format!(", default {}", option.default)
    };
    let help = match option.kind {
        Kind::Flag => format!("{} [{}]", option.description(), option.env),
        _ => format!("{} [{}{default}]", option.description(), option.env),
    };
    let argument = Arg::new(option.name).long(option.name).help(help);
    match option.kind {
        Kind::Flag => argument.action(ArgAction::SetTrue),
        kind if kind.separator().is_some() => argument
            .value_name(option.value)
            .action(ArgAction::Append)
            .allow_hyphen_values(true),
        _ if option.name == OPTION.config.name => argument
            .short('c')
            .visible_alias("conf")
            .value_name(option.value)
            .action(ArgAction::Set),
        _ => argument
            .value_name(option.value)
            .action(ArgAction::Set)
            .allow_hyphen_values(true),
    }
}

/// Reads file and environment, and lays the command line over them.
pub fn layers(matches: &ArgMatches) -> Result<Layers, ConfigError> {
    // A file of F-Stack's is read for the device that it is to be used with.
    let device = given(matches, OPTION.device.name);
    if let Some(text) = &device {
        Layers::default().set(OPTION.device.name, text.clone(), Source::CommandLine)?;
    }
    let variable = |name: &str| match &device {
        Some(device) if name == OPTION.device.env => Some(device.clone()),
        _ => std::env::var_os(name).and_then(|text| text.into_string().ok()),
    };
    let process = matches.try_get_one::<u32>("proc-id").ok().flatten();
    let named = given(matches, OPTION.config.name).map(PathBuf::from);
    let file = named.or_else(|| {
        let is_chosen = variable(OPTION.config.env).is_some();
        let name = given(matches, OPTION.name.name).filter(|_| !is_chosen)?;
        file_of_instance(Path::new(INSTANCE_FILES), &name)
    });
    let mut layers = match file {
        Some(file) => Layers::read_with_file(&file, process.copied(), variable)?,
        None => Layers::read(variable)?,
    };
    for option in OPTIONS {
        if let Some(text) = given(matches, option.name) {
            layers.set(option.name, text, Source::CommandLine)?;
        }
    }
    layers.take_profile()?;
    name_wholly(&mut layers)?;
    Ok(layers)
}

/// The file of an instance of this name, if there is one.
fn file_of_instance(folder: &Path, name: &str) -> Option<PathBuf> {
    let is_plain = !name.contains('/');
    let file = folder.join(format!("{name}.toml"));
    (is_plain && file.is_file()).then_some(file)
}

/// Makes paths absolute: the keeper works in another directory, and a program may change to one.
fn name_wholly(layers: &mut Layers) -> Result<(), ConfigError> {
    let paths = [OPTION.run_dir, OPTION.pcap, OPTION.log_file, OPTION.filter];
    for name in paths.map(|option| option.name) {
        let whole = layers
            .text(name)
            .filter(|text| Path::new(text).is_relative())
            // The filter may be the commands themselves.
            .filter(|text| name != OPTION.filter.name || text.starts_with('.'))
            .and_then(|text| {
                std::path::absolute(text)
                    .ok()?
                    .into_os_string()
                    .into_string()
                    .ok()
            });
        if let Some(whole) = whole {
            layers.set(name, whole, layers.source(name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_the_file_of_its_name() {
        let folder = std::env::temp_dir().join(format!("slipstack-names-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("web.toml");
        std::fs::write(&file, "spin-us = 0\n").unwrap();
        assert_eq!(file_of_instance(&folder, "web"), Some(file));
        assert_eq!(file_of_instance(&folder, "db"), None);
        assert_eq!(file_of_instance(&folder.join("sub"), "../web"), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
