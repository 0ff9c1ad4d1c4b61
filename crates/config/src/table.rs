//! The options table: the only place where an option is declared.

use crate::kind::Kind;

/// Which commands offer an option on their command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `slipstack run` and `slipstack instance`.
    RunAndInstance,
    /// `slipstack run` only.
    Run,
    /// `slipstack instance` only.
    Instance,
    /// Every command, `status`, `why` and `stop` included.
    All,
    /// No command line: set by `slipstack run` for the program it starts.
    Internal,
}

/// One row of the table.
#[derive(Debug)]
pub struct OptionSpec {
    /// Long name on the command line, without the dashes, and the key in the TOML file.
    pub name: &'static str,
    pub env: &'static str,
    pub kind: Kind,
    /// In the syntax a user would type; empty = not set.
    pub default: &'static str,
    pub scope: Scope,
    /// What the value is called in `--help`.
    pub value: &'static str,
    /// One sentence for `--help`, the reference and the sample file.
    pub help: &'static str,
}

pub const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "if",
        env: "SLIPSTACK_IF",
        kind: Kind::Interface,
        default: "",
        scope: Scope::RunAndInstance,
        value: "NAME",
        help: "Network interface to share with the kernel; without it Slipstack makes a TAP of its own",
    },
    OptionSpec {
        name: "ip",
        env: "SLIPSTACK_IP",
        kind: Kind::Cidrs,
        default: "",
        scope: Scope::RunAndInstance,
        value: "ADDRESS/LENGTH",
        help: "Address of the stack with its prefix length, IPv4 or IPv6; needed with --if; may be given several times or as a list",
    },
    OptionSpec {
        name: "gw",
        env: "SLIPSTACK_GW",
        kind: Kind::Addresses,
        default: "",
        scope: Scope::RunAndInstance,
        value: "ADDRESS",
        help: "Default gateway, one for each family; without it only the stack's own networks are reached through the stack",
    },
    OptionSpec {
        name: "route",
        env: "SLIPSTACK_ROUTE",
        kind: Kind::Routes,
        default: "",
        scope: Scope::RunAndInstance,
        value: "NET[,via=ADDRESS]",
        help: "A route beside --ip and --gw, such as 10.1.0.0/16,via=10.0.0.2; also table=, metric=, src=, mtu=, unreachable; may be given several times, or separated by semicolons",
    },
    OptionSpec {
        name: "rule",
        env: "SLIPSTACK_RULE",
        kind: Kind::Rules,
        default: "",
        scope: Scope::RunAndInstance,
        value: "from=NET,table=ID",
        help: "Which table has the routes of packets from (or with to=, to) a network; priority= is 1000; may be given several times, or separated by semicolons",
    },
    OptionSpec {
        name: "forward",
        env: "SLIPSTACK_FORWARD",
        kind: Kind::Flag,
        default: "false",
        scope: Scope::RunAndInstance,
        value: "",
        help: "Pass packets for others on to their next hop, by the interface that they came by",
    },
    OptionSpec {
        name: "instance",
        env: "SLIPSTACK_INSTANCE",
        kind: Kind::Name,
        default: "",
        scope: Scope::Run,
        value: "NAME",
        help: "Use the stack of the running `slipstack instance` of this name instead of one in the program",
    },
    OptionSpec {
        name: "name",
        env: "SLIPSTACK_NAME",
        kind: Kind::Name,
        default: "",
        scope: Scope::Instance,
        value: "NAME",
        help: "Name under which programs find this instance",
    },
    OptionSpec {
        name: "spin-us",
        env: "SLIPSTACK_SPIN_US",
        kind: Kind::Spin,
        default: "adaptive",
        scope: Scope::RunAndInstance,
        value: "MICROSECONDS",
        help: "How long a waiting thread polls before it sleeps: `adaptive`, or 0 to 100000; with 0 it lets frames gather for 25 µs under load",
    },
    OptionSpec {
        name: "strict",
        env: "SLIPSTACK_STRICT",
        kind: Kind::Flag,
        default: "false",
        scope: Scope::Run,
        value: "",
        help: "Make it an error when a socket that could be on the stack would fall back to the kernel",
    },
    OptionSpec {
        name: "slots",
        env: "SLIPSTACK_SLOTS",
        kind: Kind::Count { min: 2, max: 64 },
        default: "16",
        scope: Scope::RunAndInstance,
        value: "COUNT",
        help: "Device queues opened for the interface: one for the keeper and one for each process with a stack",
    },
    OptionSpec {
        name: "cores",
        env: "SLIPSTACK_CORES",
        kind: Kind::Cores,
        default: "",
        scope: Scope::RunAndInstance,
        value: "LIST",
        help: "Cores to run on, such as 0 or 0,2-3",
    },
    OptionSpec {
        name: "tcp-congestion",
        env: "SLIPSTACK_TCP_CONGESTION",
        kind: Kind::Choice(&["cubic", "reno", "dctcp", "bbr"]),
        default: "cubic",
        scope: Scope::RunAndInstance,
        value: "NAME",
        help: "Congestion control of connections that do not choose with TCP_CONGESTION: cubic, reno, dctcp or bbr",
    },
    OptionSpec {
        name: "tcp-ecn",
        env: "SLIPSTACK_TCP_ECN",
        kind: Kind::Choice(&["off", "passive", "on"]),
        default: "passive",
        scope: Scope::RunAndInstance,
        value: "MODE",
        help: "Explicit congestion notification: off, passive (agree when a peer asks) or on (ask too)",
    },
    OptionSpec {
        name: "tcp-pacing",
        env: "SLIPSTACK_TCP_PACING",
        kind: Kind::Flag,
        default: "false",
        scope: Scope::RunAndInstance,
        value: "",
        help: "Spread the segments of every connection over its round trip; BBR does so anyway",
    },
    OptionSpec {
        name: "pcap",
        env: "SLIPSTACK_PCAP",
        kind: Kind::Path,
        default: "",
        scope: Scope::RunAndInstance,
        value: "FILE",
        help: "Write the frames that each engine receives and sends to FILE.PID.SLOT, for tcpdump -r and Wireshark",
    },
    OptionSpec {
        name: "tcp-fastopen",
        env: "SLIPSTACK_TCP_FASTOPEN",
        kind: Kind::Count { min: 0, max: 0x207 },
        default: "1",
        scope: Scope::RunAndInstance,
        value: "BITS",
        help: "TCP Fast Open as in net.ipv4.tcp_fastopen: 1 client, 2 server, 4 and 512 each without a cookie",
    },
    OptionSpec {
        name: "tcp-syncookies",
        env: "SLIPSTACK_TCP_SYNCOOKIES",
        kind: Kind::Count { min: 0, max: 2 },
        default: "1",
        scope: Scope::RunAndInstance,
        value: "WHEN",
        help: "SYN cookies as in net.ipv4.tcp_syncookies: 0 never, 1 when the half-open table is full, 2 always",
    },
    OptionSpec {
        name: "tcp-mtu-probing",
        env: "SLIPSTACK_TCP_MTU_PROBING",
        kind: Kind::Count { min: 0, max: 2 },
        default: "0",
        scope: Scope::RunAndInstance,
        value: "WHEN",
        help: "Search for the path's MTU as in net.ipv4.tcp_mtu_probing: 0 never, 1 when large packets vanish without an ICMP error, 2 from small packets on",
    },
    OptionSpec {
        name: "tcp-base-mss",
        env: "SLIPSTACK_TCP_BASE_MSS",
        kind: Kind::Count {
            min: 88,
            max: 65_495,
        },
        default: "1024",
        scope: Scope::RunAndInstance,
        value: "BYTES",
        help: "Segment size at which that search begins",
    },
    OptionSpec {
        name: "tcp-probe-interval",
        env: "SLIPSTACK_TCP_PROBE_INTERVAL",
        kind: Kind::Count {
            min: 1,
            max: 86_400,
        },
        default: "600",
        scope: Scope::RunAndInstance,
        value: "SECONDS",
        help: "How long after that search it begins again, in case the path takes larger packets by then",
    },
    OptionSpec {
        name: "ipfrag-high-thresh",
        env: "SLIPSTACK_IPFRAG_HIGH_THRESH",
        kind: Kind::Count {
            min: 131_072,
            max: 1 << 30,
        },
        default: "4194304",
        scope: Scope::RunAndInstance,
        value: "BYTES",
        help: "Memory of an engine for fragments of each family that wait for the rest of their packets",
    },
    OptionSpec {
        name: "log",
        env: "SLIPSTACK_LOG",
        kind: Kind::Choice(&["off", "error", "warn", "info", "debug"]),
        default: "warn",
        scope: Scope::RunAndInstance,
        value: "LEVEL",
        help: "What is written to standard error: off, error, warn, info or debug",
    },
    OptionSpec {
        name: "slaac",
        env: "SLIPSTACK_SLAAC",
        kind: Kind::Flag,
        default: "false",
        scope: Scope::RunAndInstance,
        value: "",
        help: "Take an IPv6 link-local address, and IPv6 addresses, router and MTU as the routers on the interface advertise them",
    },
    OptionSpec {
        name: "vlan",
        env: "SLIPSTACK_VLAN",
        kind: Kind::Count { min: 1, max: 4094 },
        default: "",
        scope: Scope::RunAndInstance,
        value: "ID",
        help: "The 802.1Q VLAN of `--if` that the stack is in, instead of what has no tag; the kernel needs no interface for it",
    },
    OptionSpec {
        name: "persist",
        env: "SLIPSTACK_PERSIST",
        kind: Kind::Flag,
        default: "false",
        scope: Scope::RunAndInstance,
        value: "",
        help: "Keep the device when the last program has ended, until `slipstack stop`",
    },
    OptionSpec {
        name: "run-dir",
        env: "SLIPSTACK_RUN_DIR",
        kind: Kind::Path,
        default: "",
        scope: Scope::All,
        value: "DIRECTORY",
        help: "Where control sockets live, instead of /run/slipstack (without root $XDG_RUNTIME_DIR/slipstack)",
    },
    OptionSpec {
        name: "config",
        env: "SLIPSTACK_CONFIG",
        kind: Kind::Path,
        default: "",
        scope: Scope::All,
        value: "FILE",
        help: "Configuration file to read instead of /etc/slipstack.toml",
    },
    OptionSpec {
        name: "lib",
        env: "SLIPSTACK_LIB",
        kind: Kind::Path,
        default: "",
        scope: Scope::Run,
        value: "FILE",
        help: "libslipstack.so to load instead of the one beside the slipstack command",
    },
    OptionSpec {
        name: "bin",
        env: "SLIPSTACK_BIN",
        kind: Kind::Path,
        default: "",
        scope: Scope::Internal,
        value: "FILE",
        help: "The slipstack command with which a program starts a keeper",
    },
    OptionSpec {
        name: "control-fd",
        env: "SLIPSTACK_CONTROL_FD",
        kind: Kind::Count {
            min: 0,
            max: 1_048_576,
        },
        default: "",
        scope: Scope::Internal,
        value: "NUMBER",
        help: "Inherited control connection to the keeper",
    },
];

/// The row of `name` (the command line's and the file's name).
#[must_use]
pub fn find_option(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|option| option.name == name)
}
