//! The whole command line, built from the options table.

use clap::{Arg, ArgAction, Command};
use slipstack_config::{OPTION, Scope};

use crate::args::{argument, with_options};
use crate::{arguments, counters, sockets, sysctl};

/// The whole command line.
pub fn command() -> Command {
    let command = Command::new("slipstack")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Runs unmodified Linux network programs on a user-space TCP/IP stack")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .after_help(
            "Examples:\n  \
             slipstack run -- python3 -m http.server 8000\n  \
             slipstack run --if eth1 --ip 10.0.0.5/24 --gw 10.0.0.1 -- nginx\n  \
             slipstack status\n\n\
             `slipstack COMMAND --help` explains a command and its options.",
        )
        .subcommand(run_command())
        .subcommand(instance_command())
        .subcommand(crate::serve::command())
        .subcommand(crate::load::bench_command())
        .subcommand(crate::load::stress_command())
        .subcommand(crate::load::dns_command())
        .subcommand(keeper_command())
        .subcommand(status_command())
        .subcommand(tune_command())
        .subcommand(why_command())
        .subcommand(stop_command())
        .subcommand(capture_command())
        .subcommand(with_device(sysctl::command()))
        .subcommand(with_device(sockets::ss::command()))
        .subcommand(with_device(sockets::drop::command()))
        .subcommand(with_device(sockets::netstat::command()))
        .subcommands(counters::commands().map(with_device))
        .subcommand(crate::reload::command())
        .subcommand(arguments::config_command())
        .subcommand(with_options(arguments::wait_command(), &[Scope::All]));
    neighbour_commands(network_commands(command))
}

/// Commands with the grammars of iproute2 and FreeBSD.
fn network_commands(command: Command) -> Command {
    command
        .subcommand(words_command(
            "ip",
            "Show and change addresses, interfaces, routes, rules and neighbours of a running \
             stack",
            "Examples:\n  \
             slipstack ip addr\n  \
             slipstack ip addr add 10.0.0.6/24 dev eth1\n  \
             slipstack ip link add link eth1 name eth1.10 type vlan id 10\n  \
             slipstack ip route add default via 10.10.10.1 table 10\n  \
             slipstack ip rule add from 10.10.10.0/24 table 10\n  \
             slipstack ip route get 8.8.8.8 from 10.10.10.5\n  \
             slipstack ip -s link\n  \
             slipstack ip -json route show table all\n  \
             slipstack ip help",
        ))
        .subcommand(monitor_command())
        .subcommand(words_command(
            "ifconfig",
            "Show and change interfaces and addresses, as F-Stack's ff_ifconfig",
            "Examples:\n  \
             slipstack ifconfig\n  \
             slipstack ifconfig -p 0 f-stack-0.10 create\n  \
             slipstack ifconfig f-stack-0.10 inet 10.10.10.5 netmask 255.255.255.0\n  \
             slipstack ifconfig f-stack-0.10 inet 110.110.110.1 netmask 255.255.255.255 alias",
        ))
        .subcommand(words_command(
            "route",
            "Change routes, as F-Stack's ff_route",
            "Examples:\n  \
             slipstack route add -net 0.0.0.0 10.10.10.1 -fib 10\n  \
             slipstack route delete -net 10.2.0.0/16\n  \
             slipstack route get 8.8.8.8",
        ))
        .subcommand(words_command(
            "ipfw",
            "Filter packets and choose routing tables by rules, as F-Stack's ff_ipfw",
            "Examples:\n  \
             slipstack ipfw add 100 allow tcp from 10.0.0.0/8 to me 22,80 setup in\n  \
             slipstack ipfw add 200 reset tcp from any to me 8000-8099\n  \
             slipstack ipfw add 300 deny log ip from 'table(bad)' to any\n  \
             slipstack ipfw table bad add 192.0.2.0/24\n  \
             slipstack ipfw -q /etc/ipfw.rules\n  \
             slipstack ipfw show\n  \
             slipstack ipfw add 100 setfib 10 ip from 10.10.10.0/24 to any out\n  \
             slipstack ipfw list\n  \
             slipstack ipfw delete 100",
        ))
        .subcommand(words_command(
            "knictl",
            "Show and change which ports of shared addresses the kernel keeps, as F-Stack's \
             ff_knictl",
            "\
    Examples:\n  \
    slipstack knictl\n  \
    slipstack knictl -a alltokni\n  \
    slipstack knictl --tcp 80,443\n\n\
    Options:\n  \
    -p N         Engine; all of a device go by the same\n  \
    -n           Show (also without any option), --json as JSON\n  \
    -a ACTION    default (as listed), alltokni (all to the kernel), alltoff (all to the stack)\n  \
    --tcp PORTS  The TCP ports listed, such as 80,8000-8999, or none\n  \
    --udp PORTS  The UDP ports listed\n\n\
    Connections stay where they are.",
        ))
}

fn monitor_command() -> Command {
    words_command(
        "monitor",
        "Print each change of a running stack's network until it is ended, as ip monitor",
        "Examples:\n  \
         slipstack monitor\n  \
         slipstack monitor --if eth1",
    )
}

/// Commands of neighbours with FreeBSD's grammar.
fn neighbour_commands(command: Command) -> Command {
    command
        .subcommand(words_command(
            "arp",
            "Show and change IPv4 neighbours, as F-Stack's ff_arp",
            "Examples:\n  \
             slipstack arp -an\n  \
             slipstack arp -i eth1 -a\n  \
             slipstack arp -s 10.0.0.9 02:00:00:00:00:09\n  \
             slipstack arp -d 10.0.0.9\n  \
             slipstack arp -f FILE",
        ))
        .subcommand(words_command(
            "ndp",
            "Show and change IPv6 neighbours, as F-Stack's ff_ndp",
            "Examples:\n  \
             slipstack ndp -an\n  \
             slipstack ndp -s fd00::9 02:00:00:00:00:09\n  \
             slipstack ndp -d fd00::9\n  \
             slipstack ndp -p (prefixes), -r (routers), -c (clear), -f FILE",
        ))
}

fn run_command() -> Command {
    let command = Command::new("run")
        .about("Run a program with its sockets on Slipstack")
        .long_about(
            "\
        Runs a dynamically linked program with its TCP and UDP sockets on Slipstack. Addresses of\n\
        the stack's network go to the stack, everything else stays in the kernel. Without --if a\n\
        TAP device with a private address pair is made, shared by all programs run that way, and\n\
        removed after the last of them.",
        )
        .after_help(
            "Examples:\n  \
             slipstack run -- nginx -g 'daemon off;'\n  \
             slipstack run --if eth1 --ip 10.0.0.5/24 --gw 10.0.0.1 -- redis-server\n  \
             slipstack run --if eth1 --ip 10.0.0.5/24 --ip fd00::5/64 -- nginx\n  \
             slipstack run --instance a -- nginx\n  \
             SLIPSTACK_SPIN_US=0 slipstack run -- curl http://10.254.0.1/",
        )
        .arg(
            Arg::new("program")
                .value_name("PROGRAM [ARGUMENTS]")
                .num_args(1..)
                .required(true)
                .trailing_var_arg(true)
                .value_parser(clap::value_parser!(std::ffi::OsString))
                .help("Program to run, looked for in PATH, and its arguments"),
        );
    let command = arguments::of_process(command);
    with_options(command, &[Scope::Run, Scope::RunAndInstance, Scope::All])
}

fn instance_command() -> Command {
    let command = Command::new("instance")
        .about("Run a stack in a process of its own that programs share")
        .long_about(
            "Runs the stack in this process until it is ended with Ctrl-C, SIGTERM or\n\
             `slipstack stop`. Any number of programs use it with `slipstack run --instance NAME`.",
        )
        .after_help(
            "Examples:\n  \
             slipstack instance --name a --cores 1\n  \
             slipstack instance --name b --if eth1 --ip 10.0.0.5/24 --gw 10.0.0.1 --cores 0\n  \
             slipstack instance --config config.ini --daemon     one for each bit of lcore_mask",
        );
    let command = arguments::of_group(arguments::of_process(command));
    with_options(
        command,
        &[Scope::Instance, Scope::RunAndInstance, Scope::All],
    )
}

fn keeper_command() -> Command {
    let command = Command::new("keeper")
        .hide(true)
        .about("Hold a device for the programs that use it (started by itself when it is needed)")
        .after_help("Example:\n  slipstack keeper --if eth1 --ip 10.0.0.5/24");
    with_options(command, &[Scope::RunAndInstance, Scope::All])
}

fn status_command() -> Command {
    let command = Command::new("status")
        .about("List devices, engines, programs and sockets")
        .after_help(
            "Examples:\n  \
             slipstack status\n  \
             slipstack status --json | jq '.[].programs'\n  \
             slipstack status --watch 5",
        )
        .arg(json_argument())
        .arg(
            Arg::new("watch")
                .long("watch")
                .value_name("SECONDS")
                .num_args(0..=1)
                .default_missing_value("1")
                .value_parser(counters::seconds)
                .help(
                    "Print it again whenever it has changed, looking at this interval (default 1); \
                     with --json a line each time",
                ),
        );
    with_options(command, &[Scope::All])
}

fn why_command() -> Command {
    let command = Command::new("why")
        .about("Say for each socket of a process whether it is on the stack or the kernel, and why")
        .after_help("Examples:\n  slipstack why 4711\n  slipstack why 4711 --json")
        .arg(
            Arg::new("pid")
                .value_name("PID")
                .required(true)
                .value_parser(clap::value_parser!(u32).range(1..=4_194_304))
                .help("Process to ask about"),
        )
        .arg(json_argument());
    with_options(command, &[Scope::All])
}

fn stop_command() -> Command {
    let command = Command::new("stop")
        .about("End an instance, or the keeper of a device that nobody uses")
        .after_help(
            "Examples:\n  \
             slipstack stop a          the instance of this name\n  \
             slipstack stop eth1       the keeper of this device, if no program uses it\n  \
             slipstack stop --all",
        )
        .arg(
            Arg::new("target")
                .value_name("NAME")
                .required_unless_present("all")
                .help("Name of an instance or a device"),
        )
        .arg(
            Arg::new("all")
                .long("all")
                .action(ArgAction::SetTrue)
                .conflicts_with("target")
                .help("Every instance, then every keeper without programs"),
        );
    with_options(command, &[Scope::All])
}

fn tune_command() -> Command {
    let command = Command::new("tune")
        .about("Show better settings for a network interface and the machine; --apply, --undo")
        .long_about(
            "\
    Shows how the interface's queues, RSS, rings, offloads and interrupts and a few limits of\n\
    the machine are set, and what would be better for servers. Nothing is changed without\n\
    --apply, which records the old settings; --undo restores exactly those.",
        )
        .after_help(
            "Examples:\n  \
             slipstack tune -i eth0\n  \
             slipstack tune -i eth0 --apply\n  \
             slipstack tune -i eth0 --undo",
        )
        .arg(
            Arg::new("interface")
                .short('i')
                .long("interface")
                .value_name("NAME")
                .required(true)
                .help("Network interface to look at"),
        )
        .arg(
            Arg::new("apply")
                .long("apply")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["undo", "json"])
                .help("Apply the settings shown as better"),
        )
        .arg(
            Arg::new("symmetric-rss")
                .long("symmetric-rss")
                .action(ArgAction::SetTrue)
                .conflicts_with("undo")
                .help("Propose an RSS key by which both directions of a flow have one queue"),
        )
        .arg(
            Arg::new("undo")
                .long("undo")
                .action(ArgAction::SetTrue)
                .conflicts_with("json")
                .help("Restore the settings from before --apply"),
        )
        .arg(json_argument());
    with_options(command, &[Scope::All])
}

fn capture_command() -> Command {
    let command = Command::new("capture")
        .about("Write the frames that running stacks receive and send to a file (pcapng)")
        .long_about(
            "\
    Writes the frames of a device that Slipstack uses to FILE, for Wireshark and tshark, until\n\
    Ctrl-C, SIGTERM, --count or --seconds; `-` is standard output. Programs need not be\n\
    started again and are not slowed down. Super-frames appear whole and with full\n\
    checksums.\n\
    Frames between two programs on one device do not cross it: use `run --pcap`.",
        )
        .after_help(
            "Examples:\n  \
             slipstack capture web.pcapng --port 80\n  \
             slipstack capture - --if eth1 --host 10.0.0.1 | tshark -r -",
        )
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .value_parser(clap::value_parser!(std::path::PathBuf))
                .help("File to write; an existing one is replaced"),
        )
        .arg(
            Arg::new("host")
                .long("host")
                .value_name("ADDRESS")
                .value_parser(clap::value_parser!(std::net::IpAddr))
                .help("Only frames from or to this address"),
        )
        .arg(
            Arg::new("port")
                .long("port")
                .value_name("PORT")
                .value_parser(clap::value_parser!(u16).range(1..))
                .help("Only frames from or to this TCP or UDP port"),
        )
        .arg(
            Arg::new("count")
                .long("count")
                .value_name("N")
                .value_parser(clap::value_parser!(u64).range(1..))
                .help("End after this number of frames"),
        )
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_name("S")
                .value_parser(clap::value_parser!(u32).range(1..))
                .help("End after this number of seconds"),
        )
        .arg(argument(&OPTION.interface));
    with_options(command, &[Scope::All])
}

/// A command with a grammar of its own behind the options that all have.
fn words_command(name: &'static str, about: &'static str, examples: &'static str) -> Command {
    let command = Command::new(name).about(about).after_help(examples).arg(
        Arg::new("words")
            .value_name("WORDS")
            .num_args(0..)
            .trailing_var_arg(true)
            .allow_hyphen_values(true)
            .help("Object to show or change"),
    );
    // Single letters are the grammar's own.
    with_device(command).mut_args(|it| {
        if it.is_positional() {
            it
        } else {
            it.short(None)
        }
    })
}

/// Adds the options of a command that asks the stacks of a device, or of all.
fn with_device(command: Command) -> Command {
    let device = argument(&OPTION.interface);
    with_options(command.arg(device), &[Scope::All])
}

fn json_argument() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print JSON instead of a table")
}

#[cfg(test)]
mod tests {
    use slipstack_config::Source;

    use super::*;
    use crate::args::layers;

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_and_help() {
        for sub in command().get_subcommands() {
            let help = sub
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(help.starts_with("Example"), "{}", sub.get_name());
            assert!(sub.get_about().is_some());
        }
    }

    #[test]
    fn a_given_value_wins_and_the_program_keeps_its_own_options() {
        let line = [
            "slipstack",
            "run",
            "--ip",
            "10.0.0.5/24",
            "--strict",
            "--",
            "prog",
            "--ip",
            "x",
        ];
        let matches = command().try_get_matches_from(line).unwrap();
        let run = matches.subcommand_matches("run").unwrap();
        let layers = layers(run).unwrap();
        assert_eq!(layers.text("ip"), Some("10.0.0.5/24"));
        assert_eq!(layers.text("strict"), Some("true"));
        let program: Vec<_> = run
            .get_many::<std::ffi::OsString>("program")
            .unwrap()
            .collect();
        assert_eq!(program, ["prog", "--ip", "x"]);
    }

    #[test]
    fn relative_directories_become_absolute() {
        let line = ["slipstack", "status", "--run-dir", "here"];
        let matches = command().try_get_matches_from(line).unwrap();
        let layers = layers(matches.subcommand_matches("status").unwrap()).unwrap();
        let whole = std::env::current_dir().unwrap().join("here");
        assert_eq!(layers.text("run-dir"), whole.to_str());
        assert_eq!(layers.source("run-dir"), Source::CommandLine);
    }

    #[test]
    fn an_unknown_option_is_not_taken_for_the_program() {
        let program_of = |words: &[&str]| {
            let line = ["slipstack", "run"].iter().chain(words);
            let matches = command().try_get_matches_from(line)?;
            let run = matches.subcommand_matches("run").unwrap();
            let program = run.get_many::<std::ffi::OsString>("program").unwrap();
            Ok::<_, clap::Error>(program.cloned().collect::<Vec<_>>())
        };
        let refused = program_of(&["--spinus", "3", "prog"]).unwrap_err();
        assert_eq!(refused.kind(), clap::error::ErrorKind::UnknownArgument);
        assert!(refused.to_string().contains("--spin-us"), "{refused}");
        assert_eq!(
            program_of(&["prog", "-x", "--ip"]).unwrap(),
            ["prog", "-x", "--ip"]
        );
        assert_eq!(program_of(&["--", "-x"]).unwrap(), ["-x"]);
    }
}
