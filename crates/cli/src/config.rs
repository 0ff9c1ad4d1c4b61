//! `slipstack config`: checks, shows and converts configuration files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgMatches;
use serde_json::{Value, json};
use slipstack_config::{FstackFile, Kind, Layers, OPTION, OPTIONS, Settings, Source};

use crate::failure::Failure;
use crate::net::bsd::ipfw;
use crate::output::{print, say, table};
use crate::sockets::print_json;

/// The value of `--device` for DPDK's ports.
const DPDK: &str = "dpdk";

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (name, matches) = matches
        .subcommand()
        .ok_or_else(|| Failure::new("check, show or convert"))?;
    let file: Option<&PathBuf> = matches.get_one("file");
    match (name, file) {
        ("check", Some(file)) => check(file, is_for_dpdk(matches), matches.get_flag("json")),
        ("convert", Some(file)) => convert(file, is_for_dpdk(matches)),
        _ => show(file, matches.get_flag("json")),
    }
}

/// Returns whether the ports of an F-Stack file are to be DPDK's.
fn is_for_dpdk(matches: &ArgMatches) -> bool {
    let is_dpdk = |text: &str| text.split(':').next() == Some(DPDK);
    matches.contains_id("device")
        || std::env::var(OPTION.device.env).is_ok_and(|text| is_dpdk(&text))
}

/// Says everything that is wrong with a file or has no meaning in it.
fn check(file: &Path, is_for_dpdk: bool, is_json: bool) -> Result<ExitCode, Failure> {
    let layers = read(file, is_for_dpdk)?;
    let settings = Settings::from_layers(&layers)?;
    ipfw::wanted(&settings, &slipstack_attach::wanted_network(&settings))?;
    if is_json {
        return print_json(&checked(file, &layers));
    }
    let Some(fstack) = layers.fstack() else {
        print(&format!("{}: every value can be used\n", file.display()))?;
        return Ok(ExitCode::SUCCESS);
    };
    for note in &fstack.notes {
        print(&format!("{note}\n"))?;
    }
    print(&format!(
        "{}: {} values are used, {} keys are noted above; {} processes\n",
        file.display(),
        fstack.given.len(),
        fstack.notes.len(),
        fstack.processes()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The outcome for a file without errors: what is used of it, and what has no meaning here.
fn checked(file: &Path, layers: &Layers) -> Value {
    let notes = layers.fstack().into_iter().flat_map(|it| &it.notes);
    let notes = notes.map(|it| json!({"line": it.line, "key": it.key, "sentence": it.sentence}));
    let is_given = |option: &&slipstack_config::OptionSpec| {
        !matches!(layers.source(option.name), Source::Default)
    };
    json!({
        "file": file,
        "used": OPTIONS.iter().filter(is_given).map(|it| it.name).collect::<Vec<_>>(),
        "notes": notes.collect::<Vec<_>>(),
        "processes": layers.fstack().map(|it| it.processes()),
    })
}

fn read(file: &Path, is_for_dpdk: bool) -> Result<Layers, Failure> {
    let variable = |name: &str| (is_for_dpdk && name == OPTION.device.env).then(|| DPDK.to_owned());
    let mut layers = Layers::read_with_file(file, None, variable)?;
    layers.take_profile()?;
    Ok(layers)
}

/// Writes an F-Stack configuration as a `slipstack.toml`.
fn convert(file: &Path, is_for_dpdk: bool) -> Result<ExitCode, Failure> {
    let fstack = match is_for_dpdk {
        true => FstackFile::read_for_dpdk(file)?,
        false => FstackFile::read(file)?,
    };
    let mut text = format!("# From {}.\n", file.display());
    let mut layers = Layers::default();
    layers.take_fstack(&fstack, None)?;
    for option in OPTIONS {
        let is_given = !matches!(layers.source(option.name), Source::Default);
        let Some(value) = layers.text(option.name).filter(|_| is_given) else {
            continue;
        };
        let value = match option.kind {
            Kind::Flag | Kind::Count { .. } => value.to_owned(),
            _ => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
        };
        text.push_str(&format!("{} = {value}\n", option.name));
    }
    print(&text)?;
    for note in &fstack.notes {
        say(&note.to_string());
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the values in force and where each comes from.
fn show(file: Option<&PathBuf>, is_json: bool) -> Result<ExitCode, Failure> {
    let variable = |name: &str| std::env::var_os(name).and_then(|text| text.into_string().ok());
    let mut layers = match file {
        Some(file) => Layers::read_with_file(file, None, variable)?,
        None => Layers::read(variable)?,
    };
    layers.take_profile()?;
    let options = OPTIONS.iter().filter(|option| option.is_in_file());
    if is_json {
        let rows = options.map(|it| {
            let from = source(&layers.source(it.name));
            json!({"option": it.name, "value": layers.text(it.name), "from": from})
        });
        return print_json(&rows.collect::<Vec<_>>());
    }
    let rows: Vec<Vec<String>> = options
        .map(|option| {
            let value = layers.text(option.name).unwrap_or("–").to_owned();
            vec![
                option.name.to_owned(),
                value,
                source(&layers.source(option.name)),
            ]
        })
        .collect();
    print(&table(&["option", "value", "from"], &rows))?;
    Ok(ExitCode::SUCCESS)
}

fn source(source: &Source) -> String {
    match source {
        Source::Default => "default".to_owned(),
        Source::File(file) => file.display().to_string(),
        Source::Line(file, line) => format!("{} line {line}", file.display()),
        Source::Environment(name) => (*name).to_owned(),
        Source::CommandLine => "command line".to_owned(),
    }
}
