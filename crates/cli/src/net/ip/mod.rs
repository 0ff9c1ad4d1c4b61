//! `slipstack ip`: the grammar of iproute2's `ip` for the objects that a stack has.

mod address;
mod batch;
mod layout;
mod link;
mod monitor;
mod neighbour;
mod options;
mod route;
mod route_get;
mod rule;
mod tables;

use slipstack_config::Settings;

use crate::failure::Failure;
use crate::net::target::Target;
use crate::net::words::Words;
use crate::output::print;
pub use monitor::{run as monitor, watch};
use options::{Form, Options};

/// The object of a command, by its first letters as iproute2 takes them.
#[derive(Clone, Copy)]
enum Object {
    Address,
    Link,
    Route,
    Rule,
    Neighbour,
    Monitor,
}

const OBJECTS: [(&str, Object); 7] = [
    ("address", Object::Address),
    ("link", Object::Link),
    ("route", Object::Route),
    ("rule", Object::Rule),
    ("neighbour", Object::Neighbour),
    ("neighbor", Object::Neighbour),
    ("monitor", Object::Monitor),
];

pub fn run(settings: &Settings, words: &[String]) -> Result<(), Failure> {
    let mut words = Words::new("ip", words);
    let mut options = Options::default();
    while let Some(word) = words.peek().filter(|word| word.starts_with('-')) {
        words.next();
        match word {
            "-j" | "-json" | "--json" => options.is_json = true,
            "-4" => options.is_v6 = Some(false),
            "-6" => options.is_v6 = Some(true),
            // iproute2's "pretty", where no number follows.
            "-p" if words.peek().is_none_or(|next| next.parse::<u32>().is_err()) => {
                options.is_pretty = true;
            }
            "-pretty" | "--pretty" => options.is_pretty = true,
            "-p" | "--engine" => options.engine = words.parsed(word)?,
            "-f" | "-family" => match words.value(word)? {
                "inet" => options.is_v6 = Some(false),
                "inet6" => options.is_v6 = Some(true),
                other => return Err(words.wrong(word, other)),
            },
            "-s" | "-stats" | "-statistics" => options.has_statistics = true,
            "-o" | "-oneline" => options.form = Form::One,
            "-br" | "-brief" => options.form = Form::Brief,
            "-h" | "-help" => return print(USAGE),
            "-b" | "-batch" => {
                let file = words.value(word)?;
                words.end()?;
                return batch::run(settings, options, file);
            }
            // Details are always shown.
            "-d" | "-details" => {}
            other => return Err(words.unknown(other)),
        }
    }
    if words.is_help() {
        return print(USAGE);
    }
    one(&Target::find(settings, options.engine)?, options, words)
}

const USAGE: &str = "\
Usage: slipstack ip [OPTIONS] OBJECT COMMAND, in the words of iproute2
  OPTIONS  -4 -6 -f FAMILY -s[tatistics] -o[neline] -br[ief] -j[son] [-p[retty]]
           -p N (the engine of F-Stack's number N) -b[atch] FILE
  addr     [show] [[dev] IF] [scope S] [to NET] [up] [type vlan]
           add|replace|change|del NET dev IF [nodad] | flush dev IF
  link     [show] [[dev] IF] [up] [type vlan]
           set IF [up|down] [mtu N] [type vlan egress-qos-map C:P ...]
           add link IF name NAME type vlan [protocol 802.1Q|802.1ad] id N | del IF
  route    [show] [table T|all] [dev IF] [via GW] [[exact|root|match] NET]
           get ADDR [from A] [mark M] [oif IF] [ipproto P] [sport N] [dport N]
           add|append|replace|change|del NET [via GW] [dev IF] [table T] [metric N] [src A] [mtu N]
           flush [table T|all] [dev IF] [via GW] [NET]
  rule     [show] | flush | add|del [not] [from NET] [to NET] [fwmark M[/MASK]] [tos T]
           [ipproto P] [sport N[-N]] [dport N[-N]] [iif IF] [oif IF] table T [priority N]
  neigh    [show] [dev IF] [nud STATE] | add|replace|change ADDR lladdr MAC dev IF
           del|get ADDR dev IF | flush [dev IF] [nud STATE]
  monitor
";

/// One command.
fn one(target: &Target, options: Options, mut words: Words<'_>) -> Result<(), Failure> {
    let Some(object) = words.next() else {
        return Err(words.missing("an object (addr, link, route, rule, neigh, monitor)"));
    };
    let found = OBJECTS.iter().find(|(name, _)| name.starts_with(object));
    let Some((_, object)) = found else {
        return Err(words.unknown(object));
    };
    match object {
        Object::Address => address::run(target, options, words),
        Object::Link => link::run(target, options, words),
        Object::Route => route::run(target, options, words),
        Object::Rule => rule::run(target, options, words),
        Object::Neighbour => neighbour::run(target, options, words),
        Object::Monitor => {
            words.end()?;
            monitor::run(target, options.is_json)
        }
    }
}
