//! Arguments that several commands have.

use clap::{Arg, ArgAction, Command};
use slipstack_config::OPTION;

/// `--help` without `-h`, for commands that give this letter another meaning; beside
/// `disable_help_flag(true)`.
pub fn long_help() -> Arg {
    Arg::new("help")
        .long("help")
        .action(ArgAction::Help)
        .help("Print this help")
}

/// `--proc-id` and `--proc-type`, as F-Stack's programs take them.
pub fn of_process(command: Command) -> Command {
    command
        .arg(
            Arg::new("proc-id")
                .long("proc-id")
                .short('p')
                .value_name("N")
                .value_parser(clap::value_parser!(u32).range(0..1024))
                .help("Number of the process among those of lcore_mask in config.ini"),
        )
        .arg(
            Arg::new("proc-type")
                .long("proc-type")
                .short('t')
                .value_name("TYPE")
                .value_parser(["primary", "secondary", "auto"])
                .hide(true)
                .help("Accepted for F-Stack's start scripts; every process may be the first"),
        )
}

/// Number of instances, and whether they go to the background.
pub fn of_group(command: Command) -> Command {
    command
        .arg(
            Arg::new("count")
                .long("count")
                .value_name("N")
                .value_parser(clap::value_parser!(u32).range(1..=64))
                .conflicts_with(OPTION.name.name)
                .help("Number of instances, named 0, 1 and so on, one for each of --cores"),
        )
        .arg(
            Arg::new("daemon")
                .long("daemon")
                .action(ArgAction::SetTrue)
                .help("Return once all are ready and leave them in the background"),
        )
}

pub fn config_command() -> Command {
    let file = |is_required: bool| {
        Arg::new("file")
            .value_name("FILE")
            .required(is_required)
            .value_parser(clap::value_parser!(std::path::PathBuf))
            .help("A slipstack.toml, or F-Stack's config.ini")
    };
    let json = || {
        Arg::new("json")
            .long("json")
            .action(ArgAction::SetTrue)
            .help("Print JSON")
    };
    Command::new("config")
        .about("Check, show or convert a configuration file")
        .subcommand_required(true)
        .after_help(
            "Examples:\n  \
             slipstack config check config.ini\n  \
             slipstack config convert config.ini > slipstack.toml\n  \
             slipstack config convert --device dpdk config.ini\n  \
             slipstack config show /etc/slipstack.toml",
        )
        .subcommand(
            Command::new("check")
                .about("Report errors in a file, and keys that have no meaning here")
                .args([file(true), device(), json()]),
        )
        .subcommand(
            Command::new("show")
                .about("Show the values in force and the source of each")
                .args([file(false), json()]),
        )
        .subcommand(
            Command::new("convert")
                .about("Write F-Stack's config.ini as TOML")
                .args([file(true), device()]),
        )
}

fn device() -> Arg {
    Arg::new("device")
        .long("device")
        .value_name("KIND")
        .value_parser(["dpdk"])
        .help("The ports of F-Stack's config.ini are DPDK's, as with --device dpdk of the others")
}

pub fn wait_command() -> Command {
    Command::new("wait")
        .about("Wait until a program listens, or an instance is ready")
        .after_help(
            "Examples:\n  \
             slipstack wait 80\n  \
             slipstack wait 10.0.0.5:53 --udp --seconds 5\n  \
             slipstack wait --instance web",
        )
        .arg(
            Arg::new("target")
                .value_name("PORT|ADDRESS:PORT")
                .required_unless_present("instance")
                .help("Port or address on which a program has to listen"),
        )
        .arg(
            Arg::new("instance")
                .long("instance")
                .value_name("NAME")
                .conflicts_with("target")
                .help("Instance that has to be ready for programs"),
        )
        .arg(
            Arg::new("udp")
                .long("udp")
                .action(ArgAction::SetTrue)
                .help("A UDP port instead of a TCP port"),
        )
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_name("S")
                .value_parser(clap::value_parser!(u32))
                .help("Longest wait [default 30]"),
        )
}
