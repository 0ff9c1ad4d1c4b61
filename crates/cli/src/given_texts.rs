//! The texts of options on a command line, by the `--if` that they follow.

use clap::ArgMatches;
use slipstack_config::{Kind, OPTION, find_option};

/// Options that are of the last `--if` before them.
const OF_INTERFACE: [&str; 3] = [
    OPTION.addresses.name,
    OPTION.gateways.name,
    OPTION.vlans.name,
];

/// The text of an option that this command has and the user gave.
pub fn given(matches: &ArgMatches, name: &str) -> Option<String> {
    if name == OPTION.further.name {
        return further(matches);
    }
    if !is_given(matches, name) {
        return None;
    }
    let option = find_option(name)?;
    if option.kind == Kind::Flag {
        return Some(matches.get_flag(name).to_string());
    }
    let Some(separator) = option.kind.separator() else {
        return values(matches, name)
            .next()
            .map(|(_, text)| text.to_owned());
    };
    let places = interfaces(matches);
    let behind = |at: usize| places.iter().rev().find(|(place, _)| *place < at);
    let mut all = Vec::new();
    for (at, text) in values(matches, name) {
        match behind(at) {
            Some((_, interface)) if OF_INTERFACE.contains(&name) => {
                all.extend(of_interface(name, text, interface));
            }
            _ => all.push(text.to_owned()),
        }
    }
    (!all.is_empty()).then(|| all.join(separator))
}

/// A VLAN with addresses names its interface; other options follow that.
fn of_interface(name: &str, text: &str, interface: &str) -> Option<String> {
    let is_vlan = name == OPTION.vlans.name && text.contains(',');
    is_vlan.then(|| format!("{text},if={interface}"))
}

/// Returns the interfaces that a second `--if` and further ones name, with the options after each,
/// beside those of `--also-if`.
fn further(matches: &ArgMatches) -> Option<String> {
    let places = interfaces(matches);
    let mut all: Vec<String> = Vec::new();
    for (number, (place, interface)) in places.iter().enumerate() {
        let end = places.get(number + 1).map_or(usize::MAX, |(end, _)| *end);
        let mut spec = (*interface).to_owned();
        for name in OF_INTERFACE {
            let here = values(matches, name).filter(|(at, _)| (*place..end).contains(at));
            for (_, text) in here {
                // A VLAN with addresses names its interface.
                if of_interface(name, text, interface).is_none() {
                    text.split(',')
                        .for_each(|one| spec.push_str(&format!(",{name}={one}")));
                }
            }
        }
        all.push(spec);
    }
    let named = values(matches, OPTION.further.name).map(|(_, text)| text.to_owned());
    all.extend(named);
    (!all.is_empty()).then(|| all.join(";"))
}

/// Every `--if` after the first, with its place among the arguments.
fn interfaces(matches: &ArgMatches) -> Vec<(usize, &str)> {
    values(matches, OPTION.interface.name).skip(1).collect()
}

/// Returns the user's values of an option, with their places among the arguments.
fn values<'a>(matches: &'a ArgMatches, name: &str) -> impl Iterator<Item = (usize, &'a str)> {
    let is_given = is_given(matches, name);
    let texts = is_given.then(|| matches.get_many::<String>(name)).flatten();
    let places = is_given.then(|| matches.indices_of(name)).flatten();
    let texts = texts.into_iter().flatten().map(String::as_str);
    places.into_iter().flatten().zip(texts)
}

fn is_given(matches: &ArgMatches, name: &str) -> bool {
    // Asking clap about an option that this command does not have is an error of its own.
    matches.try_contains_id(name).unwrap_or(false)
        && matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine)
}

#[cfg(test)]
mod tests {
    use clap::Command;
    use slipstack_config::Scope;

    use super::*;
    use crate::args::with_options;

    fn texts(words: &str) -> [Option<String>; 5] {
        let command = with_options(Command::new("run"), &[Scope::RunAndInstance]);
        let words = ["run"].into_iter().chain(words.split(' '));
        let matches = command.try_get_matches_from(words).unwrap();
        ["if", "ip", "gw", "vlan", "also-if"].map(|name| given(&matches, name))
    }

    fn some(texts: [&str; 5]) -> [Option<String>; 5] {
        texts.map(|text| (!text.is_empty()).then(|| text.to_owned()))
    }

    #[test]
    fn options_after_an_interface_belong_to_it() {
        let table = [
            (
                "--if a --ip 10.1.0.2/24 --gw 10.1.0.1",
                ["a", "10.1.0.2/24", "10.1.0.1", "", ""],
            ),
            ("--ip 10.1.0.2/24 --if a", ["a", "10.1.0.2/24", "", "", ""]),
            (
                "--if a --ip 10.1.0.2/24 --if b --ip 10.2.0.2/24 --ip 10.2.0.3/32,fd00::2/64 --gw \
                 10.2.0.1",
                [
                    "a",
                    "10.1.0.2/24",
                    "",
                    "",
                    "b,ip=10.2.0.2/24,ip=10.2.0.3/32,ip=fd00::2/64,gw=10.2.0.1",
                ],
            ),
            (
                "--if a --vlan 7,ip=10.7.0.2/24 --if b --vlan 9 --vlan 8,ip=10.8.0.2/24 --ip \
                 10.2.0.2/24",
                [
                    "a",
                    "",
                    "",
                    "7,ip=10.7.0.2/24;8,ip=10.8.0.2/24,if=b",
                    "b,ip=10.2.0.2/24,vlan=9",
                ],
            ),
            (
                "--if a --if b --ip 10.2.0.2/24 --if c --ip 10.3.0.2/24 --also-if d,ip=10.4.0.2/24",
                [
                    "a",
                    "",
                    "",
                    "",
                    "b,ip=10.2.0.2/24;c,ip=10.3.0.2/24;d,ip=10.4.0.2/24",
                ],
            ),
        ];
        for (words, expected) in table {
            assert_eq!(texts(words), some(expected), "{words}");
        }
    }
}
