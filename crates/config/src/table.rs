//! The options table: the only place where an option is declared.

use core::net::IpAddr;
use std::path::PathBuf;

use slipstack_terms::{
    Congestion, EcnMode, Listed, LogLevel, ShareAction, Spin, SpreadRule, XdpMode,
};

use crate::cidr::Cidr;
use crate::declare::{Change, OptionSpec, Reader, Scope, ascii, options, variable_name};
use crate::error::ConfigError;
use crate::interface::InterfaceSpec;
use crate::kind::{CoreList, Kind, PortRange};
use crate::routing::{RouteSpec, RuleSpec};
use crate::spread::SpreadRow;
use crate::sysctl::SysctlSetting;
use crate::value::{Value, typed};
use crate::vlan::VlanSpec;

options! {
    interface: Option<String> = "if" "NAME" {
        kind: Kind::Interface,
        default: "",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Network interface to share with the kernel; without it Slipstack makes a TAP of its \
            own. On the command line it may be given several times, each followed by the --ip, \
            --gw and --vlan of that interface",
    }

    /// Beside the first.
    further: Vec<InterfaceSpec> = "also-if" "NAME,ip=ADDRESS/LENGTH" {
        kind: Kind::Interfaces,
        default: "",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "A further interface of the stack beside --if, as a second --if names one: with ip= \
            (several times), gw=, table= (of the gateway: the main one if it is the first of its \
            family, else 4096, 8192 and so on) and vlan= (the VLAN that it is in); answers from \
            its addresses go by that table. May be given several times, or separated by semicolons",
    }

    /// Kind with its argument, or `auto`.
    device: Option<String> = "device" "KIND" {
        kind: Kind::Device,
        default: "auto",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Kind of device: auto",
    }

    xdp_mode: XdpMode = "xdp-mode" "MODE" {
        kind: Kind::Choice(XdpMode::NAMES),
        default: "auto",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Place of the XDP program of --device xdp: native (in the driver), generic (in the \
            kernel's own code), zerocopy (native, and the driver uses Slipstack's memory), or \
            auto: native if the driver can, else generic",
    }

    /// 0: none.
    xdp_busy_poll: u16 = "xdp-busy-poll" "FRAMES" {
        kind: Kind::Count { min: 0, max: 64 },
        default: "0",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "With --device xdp an engine that looks for frames has the kernel run the card's \
            receive path for so many of them, on its own processor (SO_PREFER_BUSY_POLL); 0 leaves \
            that to interrupts",
    }

    has_any_port: bool = "xdp-any-port" "" {
        kind: Kind::Flag,
        default: "false",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "With --device xdp connections take any source port, and not one that the card's RSS \
            puts into their engine's queue: for measurements of what that is worth",
    }

    has_no_segmentation: bool = "no-tso" "" {
        kind: Kind::Flag,
        default: "false",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Cut segments and datagrams in the stack, also where the interface could do it",
    }

    has_no_checksum: bool = "no-tx-checksum" "" {
        kind: Kind::Flag,
        default: "false",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Compute checksums of sent frames in the stack, for interfaces that get them wrong; \
            includes --no-tso",
    }

    is_promiscuous: bool = "promiscuous" "" {
        kind: Kind::Flag,
        default: "false",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "The interfaces hear frames to all stations for as long as the stack uses them",
    }

    /// Empty: a private pair on a TAP of our own.
    addresses: Vec<Cidr> = "ip" "ADDRESS/LENGTH" {
        kind: Kind::Cidrs,
        default: "",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Address of the stack with its prefix length, IPv4 or IPv6; needed with --if; may be \
            given several times or as a list",
    }

    /// At most one of each family.
    gateways: Vec<IpAddr> = "gw" "ADDRESS" {
        kind: Kind::Addresses,
        default: "",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Default gateway, one for each family; without it only the stack's own networks are \
            reached through the stack",
    }

    routes: Vec<RouteSpec> = "route" "NET[,via=ADDRESS]" {
        kind: Kind::Routes,
        default: "",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "A route beside --ip and --gw, such as 10.1.0.0/16,via=10.0.0.2; also dev=, table=, \
            metric=, src=, mtu=, unreachable, prohibit, blackhole; may be given several times, or \
            separated by semicolons",
    }

    rules: Vec<RuleSpec> = "rule" "from=NET,table=ID" {
        kind: Kind::Rules,
        default: "",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Table with the routes of packets from (or with to=, to) a network, of sockets with \
            a mark (mark=VALUE/MASK, SO_MARK), with a type of service (tos=, hexadecimal), that \
            came by an interface (iif=) or have to leave by one (oif=), or, with not, of all \
            others; unreachable, prohibit or blackhole instead of table=; priority= is 1000; may \
            be given several times, or separated by semicolons",
    }

    is_forwarding: bool = "forward" "" {
        kind: Kind::Flag,
        default: "false",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Pass packets for others on to their next hop, by whichever interface leads there",
    }

    kni: Option<Listed> = "kni" "METHOD" {
        kind: Kind::Choice(Listed::NAMES),
        default: "",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "The kernel has the stack's addresses too, and gets (reject) all but the listed \
            ports or (accept) the listed ports, see --kni-tcp and --kni-udp; without it all ports \
            are the stack's and the addresses must not be the kernel's",
    }

    kni_tcp: Vec<PortRange> = "kni-tcp" "PORTS" {
        kind: Kind::Ports,
        default: "",
        scope: RunAndInstance, reader: Keeper, change: Live,
        help: "With --kni: the TCP ports listed, such as 80,8000-8999; `slipstack knictl` changes \
            them while programs run",
    }

    kni_udp: Vec<PortRange> = "kni-udp" "PORTS" {
        kind: Kind::Ports,
        default: "",
        scope: RunAndInstance, reader: Keeper, change: Live,
        help: "With --kni: the UDP ports listed",
    }

    kni_action: ShareAction = "kni-action" "ACTION" {
        kind: Kind::Choice(ShareAction::NAMES),
        default: "default",
        scope: RunAndInstance, reader: Keeper, change: Live,
        help: "With --kni: receiver of new flows: default (as listed), alltokni (all to the \
            kernel) or alltoff (all to the stack)",
    }

    kni_console_rate: u32 = "kni-console-rate" "PACKETS" {
        kind: Kind::Count { min: 0, max: u32::MAX },
        default: "0",
        scope: RunAndInstance, reader: Keeper, change: Live,
        help: "With --kni: ARP and packets to groups that go to the kernel in a second at most; 0: \
            as many as come",
    }

    kni_general_rate: u32 = "kni-general-rate" "PACKETS" {
        kind: Kind::Count { min: 0, max: u32::MAX },
        default: "0",
        scope: RunAndInstance, reader: Keeper, change: Live,
        help: "With --kni: other packets that go to the kernel in a second at most; 0: as many as \
            come",
    }

    kni_kernel_rate: u32 = "kni-kernel-rate" "PACKETS" {
        kind: Kind::Count { min: 0, max: u32::MAX },
        default: "0",
        scope: RunAndInstance, reader: Keeper, change: Live,
        help: "With --kni: packets of both kinds together that go to the kernel in a second at \
            most; 0: as many as come",
    }

    instances: Vec<String> = "instance" "NAME" {
        kind: Kind::Names,
        default: "",
        scope: Run, reader: Process, change: AtStart,
        help: "Use the stack of the running `slipstack instance` of this name instead of one in \
            the program; of several, separated by commas, each process of the program uses the one \
            that has the fewest of them, and its further threads the others in turn",
    }

    name: Option<String> = "name" "NAME" {
        kind: Kind::Name,
        default: "",
        scope: Instance, reader: Process, change: AtStart,
        help: "Name under which programs find this instance",
    }

    spin: Spin = "spin-us" "MICROSECONDS" {
        kind: Kind::Spin,
        default: "adaptive",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Time for which a waiting thread polls before it sleeps: `adaptive`, or 0 to 100000; \
            0 saves processor time at the price of latency, see --gather-us",
    }

    gather_us: u32 = "gather-us" "MICROSECONDS" {
        kind: Kind::Count { min: 0, max: 1000 },
        default: "125",
        scope: Run, reader: Process, change: AtStart,
        help: "In-process with --spin-us 0: time for which frames may gather under load before the \
            program is woken for them; 0 wakes it for each",
    }

    is_strict: bool = "strict" "" {
        kind: Kind::Flag,
        default: "false",
        scope: Run, reader: Process, change: AtStart,
        help: "Make it an error when a socket that could be on the stack would fall back to the \
            kernel",
    }

    thread_engines: u16 = "thread-engines" "COUNT" {
        kind: Kind::Count { min: 0, max: 32 },
        default: "0",
        scope: Run, reader: Process, change: AtStart,
        help: "Engines that threads of a program which wait on sockets of their own may have \
            together, each with a slot, or channels to their instance; further threads share them. \
            0 = one for each processor, 9 at least and three quarters of --slots at most, where \
            it pays, and 16 channels; 1 = all threads share one; from 2 on each thread that \
            connects has an engine at once",
    }

    slots: Option<u16> = "slots" "COUNT" {
        kind: Kind::Count { min: 2, max: 127 },
        default: "16",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Device queues opened for engines when the keeper starts: one for each process with \
            a stack, thread with an engine of its own, or instance; the keeper has one beside them",
    }

    spread: Option<SpreadRule> = "spread" "RULE" {
        kind: Kind::Choice(SpreadRule::NAMES),
        default: "hash",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Choice of the engine for a new flow where several listen on the port: hash (of both \
            ends, evenly), port (a TCP port has one engine, by turns of the numbers of ports), \
            shares (by the hash, in proportion to --spread-shares), turns (the engines one after \
            the other), table (by the sender's address) or program (of yours, in eBPF)",
    }

    spread_shares: Vec<u16> = "spread-shares" "NUMBERS" {
        kind: Kind::Shares,
        default: "",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "For --spread shares: the share of each engine, such as 4,1,1, by turns in the order \
            of their slots",
    }

    spread_table: Vec<SpreadRow> = "spread-table" "ROWS" {
        kind: Kind::Rows,
        default: "",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "For --spread table: networks with the engine, by the order of the slots from 0, \
            that gets their flows, such as 10.1.0.0/16=0,10.2.0.0/16=1; others go by the hash",
    }

    spread_program: Option<PathBuf> = "spread-program" "FILE" {
        kind: Kind::Path,
        default: "",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "For --spread program: an object file with one socket filter of eBPF, which answers \
            the number of an engine for the first frame of each flow",
    }

    cores: CoreList = "cores" "LIST" {
        kind: Kind::Cores,
        default: "",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Cores to run on, such as 0 or 0,2-3: with several, each thread that has an engine \
            gets one of them, by the order of the slots",
    }

    congestion: Congestion = "tcp-congestion" "NAME" {
        kind: Kind::Choice(Congestion::NAMES),
        default: "cubic",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Congestion control of connections that do not choose with TCP_CONGESTION: cubic, \
            reno, dctcp or bbr",
    }

    ecn: EcnMode = "tcp-ecn" "MODE" {
        kind: Kind::Choice(EcnMode::NAMES),
        default: "passive",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Explicit congestion notification: off, passive (agree when a peer asks) or on (ask \
            too)",
    }

    is_paced: bool = "tcp-pacing" "" {
        kind: Kind::Flag,
        default: "false",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Spread the segments of every connection over its round trip; BBR does so anyway",
    }

    pcap: Option<PathBuf> = "pcap" "FILE" {
        kind: Kind::Path,
        default: "",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Write the frames that each engine receives and sends to FILE.PID.SLOT, for tcpdump \
            -r and Wireshark",
    }

    pcap_snaplen: u32 = "pcap-snaplen" "BYTES" {
        kind: Kind::Count { min: 64, max: 65_535 },
        default: "65535",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Bytes of each frame that --pcap keeps",
    }

    pcap_file_size: Option<u32> = "pcap-file-size" "BYTES" {
        kind: Kind::Count { min: 65_536, max: u32::MAX },
        default: "",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Size at which --pcap begins its next file, whose name ends with .1, .2 and so on",
    }

    tcp_fastopen: u32 = "tcp-fastopen" "BITS" {
        kind: Kind::Count { min: 0, max: 0x207 },
        default: "1",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "TCP Fast Open as in net.ipv4.tcp_fastopen: 1 client, 2 server, 4 and 512 each \
            without a cookie",
    }

    has_user_timeout_option: bool = "tcp-user-timeout-option" "" {
        kind: Kind::Flag,
        default: "false",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Tell peers of TCP_USER_TIMEOUT, and go by what they tell where a program sets none \
            (RFC 5482; Linux has no such option)",
    }

    tcp_syncookies: u8 = "tcp-syncookies" "WHEN" {
        kind: Kind::Count { min: 0, max: 2 },
        default: "1",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "SYN cookies as in net.ipv4.tcp_syncookies: 0 never, 1 when the half-open table is \
            full, 2 always",
    }

    tcp_mtu_probing: u8 = "tcp-mtu-probing" "WHEN" {
        kind: Kind::Count { min: 0, max: 2 },
        default: "0",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Search for the path's MTU as in net.ipv4.tcp_mtu_probing: 0 never, 1 when large \
            packets vanish without an ICMP error, 2 from small packets on",
    }

    tcp_base_mss: u16 = "tcp-base-mss" "BYTES" {
        kind: Kind::Count { min: 88, max: 65_495 },
        default: "1024",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Segment size at which that search begins",
    }

    tcp_probe_interval: u32 = "tcp-probe-interval" "SECONDS" {
        kind: Kind::Count { min: 1, max: 86_400 },
        default: "600",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Time after which that search begins again, in case the path takes larger packets by \
            then",
    }

    ipfrag_high_thresh: u32 = "ipfrag-high-thresh" "BYTES" {
        kind: Kind::Count { min: 131_072, max: 1 << 30 },
        default: "4194304",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Memory of an engine for fragments of each family that wait for the rest of their \
            packets",
    }

    sysctls: Vec<SysctlSetting> = "sysctl" "NAME=VALUE" {
        kind: Kind::Sysctls,
        default: "",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "A sysctl of the stack by its name on Linux or FreeBSD, such as \
            net.ipv4.tcp_fin_timeout=30; may be given several times, or separated by semicolons",
    }

    filter: Option<String> = "filter" "RULES" {
        kind: Kind::Filter,
        default: "",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Rules of the packet filter: a file of ipfw commands, whose path begins with / or a \
            dot, or the commands themselves, separated by semicolons",
    }

    profile: Option<String> = "profile" "NAME" {
        kind: Kind::Name,
        default: "",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Values for a kind of program, below those of the configuration file: nginx, redis, \
            haproxy, memcached, dns, bulk, or NAME.toml of /etc/slipstack/profiles",
    }

    log_file: Option<PathBuf> = "log-file" "FILE" {
        kind: Kind::Path,
        default: "",
        scope: RunAndInstance, reader: Process, change: AtStart,
        help: "Append the events of --log to FILE instead of writing it to standard error",
    }

    log: LogLevel = "log" "LEVEL" {
        kind: Kind::Choice(LogLevel::NAMES),
        default: "warn",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Events written to standard error, and by the keeper to its log: off, error, warn, \
            info or debug",
    }

    is_autoconfigured: bool = "slaac" "" {
        kind: Kind::Flag,
        default: "false",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Take an IPv6 link-local address on each interface and VLAN, and IPv6 addresses, \
            router and MTU as the routers there advertise them",
    }

    /// At most one without addresses.
    vlans: Vec<VlanSpec> = "vlan" "ID[,ip=ADDRESS/LENGTH]" {
        kind: Kind::Vlans,
        default: "",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "An 802.1Q VLAN of `--if`, for which the kernel needs no interface. Alone: the VLAN \
            that --ip is in, instead of frames without a tag. With ip= (several times): a VLAN \
            beside that, also gw=, table= (its number if not given), mtu=, proto=802.1ad, pcp= \
            (the priority in its tags) and if= (which of several interfaces); answers from its \
            addresses go by that table. 10.20,ip=... is VLAN 20 within VLAN 10. May be given \
            several times, or separated by semicolons",
    }

    is_persistent: bool = "persist" "" {
        kind: Kind::Flag,
        default: "false",
        scope: RunAndInstance, reader: Keeper, change: AtStart,
        help: "Keep the device when the last program has ended, until `slipstack stop`",
    }

    run_dir: Option<PathBuf> = "run-dir" "DIRECTORY" {
        kind: Kind::Path,
        default: "",
        scope: All, reader: Keeper, change: AtStart,
        help: "Directory of control sockets, instead of /run/slipstack (without root \
            $XDG_RUNTIME_DIR/slipstack)",
    }

    config: Option<PathBuf> = "config" "FILE" {
        kind: Kind::Path,
        default: "",
        scope: All, reader: Process, change: AtStart,
        help: "Configuration file to read instead of /etc/slipstack.toml",
    }

    lib: Option<PathBuf> = "lib" "FILE" {
        kind: Kind::Path,
        default: "",
        scope: Run, reader: Process, change: AtStart,
        help: "libslipstack.so to load instead of the one beside the slipstack command",
    }

    bin: Option<PathBuf> = "bin" "FILE" {
        kind: Kind::Path,
        default: "",
        scope: Internal, reader: Process, change: AtStart,
        help: "The slipstack command with which a program starts a keeper",
    }

    control_fds: Vec<i32> = "control-fd" "NUMBER" {
        kind: Kind::Numbers,
        default: "",
        scope: Internal, reader: Process, change: AtStart,
        help: "Inherited control connections to the keeper, or to each instance",
    }
}

/// Returns the row of `name` (the command line's and the file's name).
#[must_use]
pub fn find_option(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|option| option.name == name)
}

impl OptionSpec {
    /// Returns whether the option is allowed in a configuration file.
    #[must_use]
    pub fn is_in_file(&self) -> bool {
        !matches!(self.scope, Scope::Internal) && self.name != OPTION.config.name
    }
}

impl Settings {
    /// Variables that give a keeper the settings that concern it.
    #[must_use]
    pub fn keeper_environment(&self) -> Vec<(&'static str, String)> {
        self.texts()
            .filter(|(option, _)| option.reader == Reader::Keeper)
            .map(|(option, text)| (option.env, text))
            .collect()
    }
}
