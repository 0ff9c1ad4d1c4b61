//! `slipstack sysctl` and `ff_sysctl`: the tunable values of running stacks, by the names of Linux
//! and FreeBSD.

use std::cell::RefCell;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Map, Value};
use slipstack_attach::{admin, inquiry};
use slipstack_channel::control::net::{Answer, Change, Client, Inquiry, Query};
use slipstack_config::Settings;
use slipstack_config::sysctl::{self, NetworkSwitch, SYSCTLS, Sysctl, SysctlError, Values};

use crate::counters::engines::place_of_process;
use crate::failure::Failure;
use crate::given::asking;
use crate::names;
use crate::output::print;
use crate::sockets::json;

pub fn command() -> Command {
    let command = Command::new("sysctl")
        .about("Show and set sysctls of running stacks, by their names on Linux or FreeBSD")
        .long_about(
            "\
        Shows and sets numbers of the stacks of a device, by their names on Linux or FreeBSD. A\n\
        new value holds at once for new connections, in every engine, and in those to come.",
        )
        .after_help(
            "Examples:\n  \
             slipstack sysctl -a\n  \
             slipstack sysctl net.ipv4.tcp_fin_timeout\n  \
             slipstack sysctl -w net.ipv4.tcp_ecn=1\n  \
             ff_sysctl -p 0 net.inet.tcp.delayed_ack=0",
        );
    with_flags(command)
        .arg(
            Arg::new("process")
                .short('p')
                .long("engine")
                .value_name("N")
                .value_parser(clap::value_parser!(u32))
                .help(
                    "Show the values of process N, as F-Stack counts; changes are for every engine",
                ),
        )
        .arg(json())
        .arg(
            Arg::new("words")
                .value_name("NAME[=VALUE]")
                .num_args(0..)
                .help("Names to show or set"),
        )
}

/// The options of one letter, as those of sysctl(8) on Linux and FreeBSD.
fn with_flags(command: Command) -> Command {
    let flag = |name: &'static str, letter: char, help: &'static str| {
        Arg::new(name)
            .short(letter)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    command
        .arg(flag("all", 'a', "Every name that has a value"))
        .arg(flag("every", 'A', "As -a").hide(true))
        .arg(flag("values", 'n', "Values without names"))
        .arg(flag("names", 'N', "Names without values"))
        .arg(flag(
            "descriptions",
            'd',
            "Show the meaning of each name instead of its value",
        ))
        .arg(flag(
            "types",
            't',
            "Show the type of each value instead of it",
        ))
        .arg(flag("hex", 'x', "Numbers in hexadecimal"))
        .arg(flag("writable", 'W', "With -a: only names that can be set"))
        .arg(
            flag(
                "tunable",
                'T',
                "As -W: what can be set can be set at the start too",
            )
            .hide(true),
        )
        .arg(flag("opaque", 'o', "Accepted for scripts: no value is opaque").hide(true))
        .arg(flag("opaque-hex", 'X', "As -o").hide(true))
        .arg(
            Arg::new("file")
                .short('f')
                .value_name("FILE")
                .help("Set the lines NAME=VALUE of the file"),
        )
        .arg(flag("quiet", 'q', "Do not print new values"))
        .arg(flag("ignore", 'i', "Ignore unknown names"))
        .arg(flag(
            "equal",
            'e',
            "Linux: ignore unknown names; ff_sysctl: NAME=VALUE",
        ))
        .arg(flag(
            "write",
            'w',
            "Accepted for scripts: NAME=VALUE sets without it",
        ))
}

/// Format of answers.
struct Style {
    is_bsd: bool,
    has_names: bool,
    has_values: bool,
    has_descriptions: bool,
    has_types: bool,
    is_hex: bool,
    /// Only writable names.
    is_settable: bool,
    is_quiet: bool,
    between: &'static str,
    /// `--json`: what has been shown so far.
    json: Option<RefCell<Map<String, Value>>>,
}

impl Style {
    fn of(matches: &ArgMatches) -> Style {
        let is_bsd = names::is_fstack_tool();
        let between = match (is_bsd, matches.get_flag("equal")) {
            (true, true) => "=",
            (true, false) => ": ",
            (false, _) => " = ",
        };
        Style {
            is_bsd,
            has_names: !matches.get_flag("values"),
            has_values: !matches.get_flag("names"),
            has_descriptions: matches.get_flag("descriptions"),
            has_types: matches.get_flag("types"),
            is_hex: matches.get_flag("hex"),
            is_settable: matches.get_flag("writable") || matches.get_flag("tunable"),
            is_quiet: matches.get_flag("quiet"),
            between,
            json: matches.get_flag("json").then(RefCell::default),
        }
    }

    fn show(&self, row: &Sysctl, value: &str) -> Result<(), Failure> {
        match self.json {
            Some(_) => self.keep(row, value),
            None => print(&self.line(row, value))?,
        }
        Ok(())
    }

    /// Keeps a value for the answer in JSON; numbers as numbers.
    fn keep(&self, row: &Sysctl, value: &str) {
        let json_value = match value.parse::<u32>() {
            Ok(number) => Value::from(number),
            Err(_) => Value::from(value),
        };
        if let Some(json) = &self.json {
            json.borrow_mut().insert(row.name.to_owned(), json_value);
        }
    }

    /// Prints what has been kept.
    fn finish(&self) -> Result<(), Failure> {
        match &self.json {
            Some(json) => print(&format!("{:#}\n", Value::Object(json.borrow().clone()))),
            None => Ok(()),
        }
    }

    fn line(&self, row: &Sysctl, value: &str) -> String {
        let number: Option<u32> = value.parse().ok();
        let value = match number {
            _ if self.has_descriptions => &row.explanation(),
            Some(_) if self.has_types => "integer",
            None if self.has_types => "string",
            Some(number) if self.is_hex => &format!("{number:#x}"),
            _ => value,
        };
        match (self.has_names, self.has_values) {
            (true, true) => format!("{}{}{value}\n", row.name, self.between),
            (true, false) => format!("{}\n", row.name),
            _ => format!("{value}\n"),
        }
    }
}

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let settings = asking(matches)?;
    let style = Style::of(matches);
    let mut clients = Vec::new();
    for path in admin::control_sockets(&settings).map_err(|e| Failure::new(e.to_string()))? {
        clients.push(Client::connect(&path).map_err(|e| Failure::new(e.to_string()))?);
    }
    let Some(first) = clients.first() else {
        return Err(Failure::new(
            "nothing runs on Slipstack here, so nothing has sysctls",
        ));
    };
    let engine = matches.get_one::<u32>("process").copied();
    let mut values = running_values(&settings, first, engine)?;
    if matches.get_flag("all") || matches.get_flag("every") {
        print_below(&style, &values, "")?;
        return style.finish().map(|()| ExitCode::SUCCESS);
    }
    let words: Vec<String> = matches
        .get_many("words")
        .unwrap_or_default()
        .cloned()
        .collect();
    let words = match matches.get_one::<String>("file") {
        Some(path) => [lines_of(path)?, words].concat(),
        None => words,
    };
    let ignores = matches.get_flag("ignore") || (matches.get_flag("equal") && !style.is_bsd);
    let mut code = ExitCode::SUCCESS;
    for word in words {
        match one(&word, &style, &mut values, &clients) {
            Ok(()) => {}
            Err(Some(SysctlError::Unknown { .. })) if ignores => {}
            Err(Some(error)) => {
                crate::output::say(&format!("sysctl: {error}"));
                code = ExitCode::FAILURE;
            }
            Err(None) => return Err(Failure::new("the keeper refused the change")),
        }
    }
    style.finish()?;
    Ok(code)
}

/// Returns the values of an engine: those that it was started with, and those that have been set
/// since then. Without engines they are the device's.
fn running_values(
    settings: &Settings,
    client: &Client,
    engine: Option<u32>,
) -> Result<Values, Failure> {
    let mut values = settings.sysctl_values();
    // A user who may not ask engines sees what is the device's.
    let answers = inquiry::inquire(settings, &Inquiry::Tunables).unwrap_or_default();
    let engines = answers.iter().map(|it| &it.engine);
    let is_any = engines.clone().any(|it| it.slot != 0);
    let place = place_of_process(engines, engine.unwrap_or(0));
    if is_any && engine.is_some() && place.is_none() {
        return Err(Failure::new(
            "there is no such engine; see `slipstack status`",
        ));
    }
    let chosen = place.and_then(|place| answers.get(place));
    let lines = chosen.iter().flat_map(|answer| answer.text.lines());
    for (name, value) in lines.filter_map(|line| serde_json::from_str::<(String, u32)>(line).ok()) {
        values.set(&name, value);
    }
    // An engine may not have taken the last change yet.
    if let Answer::Network(state) = ask(client, Query::Network)? {
        for (name, value) in &state.tunables {
            values.set(name, *value);
        }
        values.is_forwarding = state.is_forwarding;
        values.connects_all_tables = state.connects_all_tables;
    }
    Ok(values)
}

/// Reads the settings in a file; text after `#` is a comment.
fn lines_of(path: &str) -> Result<Vec<String>, Failure> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Failure::new(format!("{path}: {error}")))?;
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let lines = lines.map(str::trim).filter(|line| !line.is_empty());
    Ok(lines.map(str::to_owned).collect())
}

/// Prints all names that begin so and have a value; returns whether there is one.
fn print_below(style: &Style, values: &Values, prefix: &str) -> Result<bool, Failure> {
    let mut text = String::new();
    let mut is_any = false;
    let is_fixed = |row: &Sysctl| matches!(row.meaning, sysctl::Meaning::Fixed(..));
    let wanted = SYSCTLS.iter().filter(|row| row.name.starts_with(prefix));
    for row in wanted.filter(|row| !style.is_settable || !is_fixed(row)) {
        if let Ok(value) = values.read(row) {
            is_any = true;
            match style.json {
                Some(_) => style.keep(row, &value),
                None => text.push_str(&style.line(row, &value)),
            }
        }
    }
    print(&text)?;
    Ok(is_any)
}

/// Shows or sets one name; the error is `None` if the keeper refuses.
fn one(
    word: &str,
    style: &Style,
    values: &mut Values,
    clients: &[Client],
) -> Result<(), Option<SysctlError>> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (word, None),
    };
    let row = match sysctl::find(name) {
        // The first parts of a name select everything below them.
        Err(error) if value.is_none() => {
            let below = print_below(style, values, &format!("{name}."));
            return if below.map_err(|_| None)? {
                Ok(())
            } else {
                Err(Some(error))
            };
        }
        found => found?,
    };
    let Some(value) = value else {
        let value = values.read(row)?;
        return style.show(row, &value).map_err(|_| None);
    };
    let before = values.read(row)?;
    let numbers = sysctl::live_changes(row, value)?;
    let switch = sysctl::network_switch(row, value);
    let tune = |&(name, value): &(&'static str, u32)| Change::Tune {
        name: name.to_owned(),
        value,
    };
    let changes = numbers.iter().map(tune);
    let changes: Vec<Change> = changes.chain(switch.map(network_change)).collect();
    for client in clients {
        match ask(client, Query::Set(changes.clone())) {
            Ok(_) => {}
            Err(failure) => {
                crate::output::say(&format!("sysctl: {name}: {failure}"));
                return Err(None);
            }
        }
    }
    for (name, value) in numbers {
        values.set(name, value);
    }
    match switch {
        Some((NetworkSwitch::Forwarding, is_on)) => values.is_forwarding = is_on,
        Some((NetworkSwitch::ConnectsAllTables, is_on)) => values.connects_all_tables = is_on,
        None => {}
    }
    let after = values.read(row)?;
    let shown = if style.is_bsd && style.json.is_none() {
        format!("{before} -> {after}")
    } else {
        after
    };
    match style.is_quiet {
        true => Ok(()),
        false => style.show(row, &shown).map_err(|_| None),
    }
}

fn network_change((switch, is_on): (NetworkSwitch, bool)) -> Change {
    match switch {
        NetworkSwitch::Forwarding => Change::SetForwarding(is_on),
        NetworkSwitch::ConnectsAllTables => Change::ConnectAllTables(is_on),
    }
}

fn ask(client: &Client, query: Query) -> Result<Answer, Failure> {
    client
        .ask(query)
        .map_err(|error| Failure::new(error.to_string()))
}
