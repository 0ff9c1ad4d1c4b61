//! Options of F-Stack's ff_netstat that have no meaning here, with the commands that show the same.

use clap::{ArgMatches, Command};

use super::flag;
use crate::failure::Failure;

/// Name, letter, and where to look instead.
const ABSENT: &[(&str, char, &str)] = &[
    (
        "blocks",
        'A',
        "sockets have no control blocks of a kernel: ss -e names the engine of each",
    ),
    (
        "bpf",
        'B',
        "the stack has no BPF listeners: slipstack capture records frames",
    ),
    (
        "stacks",
        'c',
        "there is one TCP stack: -C shows the congestion control of each connection",
    ),
    (
        "groups",
        'g',
        "the multicast groups of a program are the kernel's list beside the stack's",
    ),
    (
        "mbufs",
        'm',
        "there are no mbufs: ss -m shows the memory of sockets",
    ),
    (
        "nexthops",
        'o',
        "routes are not stored by next hop: netstat -r shows the gateways",
    ),
    (
        "nexthop-groups",
        'O',
        "there are no groups of next hops: netstat -r shows the gateways",
    ),
    (
        "log-ids",
        'P',
        "connections have no log: slipstack capture records their frames",
    ),
    (
        "netisr",
        'Q',
        "there are no netisr queues: slipstack top shows the load of engines",
    ),
    (
        "flow-ids",
        'R',
        "a device's hash is not kept: ss -e names the engine of each flow",
    ),
    (
        "diagnosis",
        'T',
        "ss -i shows retransmissions, segments out of order and windows",
    ),
    (
        "unix",
        'u',
        "unix sockets are the kernel's: ss -x of iproute2 lists them",
    ),
    ("buffers", 'x', "ss -m shows the buffers of sockets"),
    (
        "zero",
        'z',
        "counters go on for ever: netstat -w shows what is new",
    ),
];

pub fn with_options(mut command: Command) -> Command {
    for (name, letter, _) in ABSENT {
        command = command.arg(flag(name, *letter, "Refused").hide(true));
    }
    command
}

/// # Errors
/// One of the options is given; the sentence says where to look.
pub fn check(matches: &ArgMatches) -> Result<(), Failure> {
    let given = ABSENT.iter().find(|(name, ..)| matches.get_flag(name));
    match given {
        None => Ok(()),
        Some((_, letter, why)) => Err(Failure::new(format!(
            "netstat: -{letter} is not supported: {why}"
        ))),
    }
}
