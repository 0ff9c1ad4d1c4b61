//! The table of names.

use slipstack_stack::Tunable::{self, *};

use super::Meaning::{Choice, Fixed, Is, Moot, Network, Range, Sizes};
use super::NetworkSwitch::{ConnectsAllTables, Forwarding};
use super::Unit::{Half, On, Same, Seconds};
use super::{Meaning, Sysctl};

const LINUX_CONGESTION: &[&str] = &["cubic", "reno", "dctcp", "bbr"];
const FREEBSD_CONGESTION: &[&str] = &["cubic", "newreno", "dctcp", "bbr"];

/// The greatest wait for an ACK where FreeBSD's switch turns delaying on.
const DELAYED_ACK_MS: u32 = 160;

const PROCESS: &str = "the stack's tables grow by need, up to limits that are its own";
const EXACT: &str = "timers are exact and need no ticks";
const KERNEL: &str = "descriptors are the kernel's own, with the kernel's numbers and limits";
const RACK: &str = "RACK-TLP finds losses on every connection";
const HPTS: &str = "pacing uses the stack's exact timers";
const SLAAC: &str = "the option --slaac sets it when the stack is started";

const fn row(name: &'static str, meaning: Meaning) -> Sysctl {
    Sysctl { name, meaning }
}

const fn is(name: &'static str, tunable: Tunable) -> Sysctl {
    row(name, Is(tunable, Same))
}

const fn seconds(name: &'static str, tunable: Tunable) -> Sysctl {
    row(name, Is(tunable, Seconds))
}

const fn moot(name: &'static str, why: &'static str) -> Sysctl {
    row(name, Moot(why))
}

/// Every name, Linux's first.
pub const SYSCTLS: &[Sysctl] = &[
    row(
        "net.core.default_qdisc",
        Fixed("none", "frames go from the stack to the device"),
    ),
    moot(
        "net.core.netdev_max_backlog",
        "a device's ring is the queue",
    ),
    moot(
        "net.core.busy_poll",
        "the option --spin-us sets how long a waiting thread polls",
    ),
    moot(
        "net.core.busy_read",
        "the option --spin-us sets how long a waiting thread polls",
    ),
    moot(
        "net.core.rmem_max",
        "the kernel's own value bounds SO_RCVBUF",
    ),
    moot(
        "net.core.wmem_max",
        "the kernel's own value bounds SO_SNDBUF",
    ),
    is("net.core.somaxconn", BacklogMax),
    row("net.ipv4.ip_forward", Network(Forwarding)),
    row(
        "net.ipv4.ip_local_port_range",
        Range {
            first: PortFirst,
            last: PortLast,
        },
    ),
    is("net.ipv4.ipfrag_high_thresh", FragmentsMax),
    moot(
        "net.ipv4.tcp_abort_on_overflow",
        "a full listener drops SYNs, which its clients repeat",
    ),
    moot(
        "net.ipv4.tcp_autocorking",
        "data that a program sends in one batch leaves together",
    ),
    row(
        "net.ipv4.tcp_available_congestion_control",
        Fixed("cubic reno dctcp bbr", "these are built in"),
    ),
    is("net.ipv4.tcp_base_mss", BaseMss),
    row(
        "net.ipv4.tcp_congestion_control",
        Choice(CongestionControl, LINUX_CONGESTION),
    ),
    row(
        "net.ipv4.tcp_dsack",
        Fixed("1", "duplicates are always reported"),
    ),
    is("net.ipv4.tcp_ecn", Ecn),
    is("net.ipv4.tcp_fastopen", FastOpen),
    seconds("net.ipv4.tcp_fin_timeout", FinWait2),
    row(
        "net.ipv4.tcp_frto",
        Fixed("2", "spurious timeouts are always detected"),
    ),
    seconds("net.ipv4.tcp_keepalive_intvl", KeepInterval),
    is("net.ipv4.tcp_keepalive_probes", KeepProbes),
    seconds("net.ipv4.tcp_keepalive_time", KeepIdle),
    is("net.ipv4.tcp_max_orphans", OrphansMax),
    is("net.ipv4.tcp_max_syn_backlog", SynEntriesMax),
    is("net.ipv4.tcp_max_tw_buckets", TimeWaitsMax),
    moot(
        "net.ipv4.tcp_mem",
        "each buffer is bounded, and idle connections own none",
    ),
    row(
        "net.ipv4.tcp_moderate_rcvbuf",
        Fixed("1", "receive buffers grow by need"),
    ),
    is("net.ipv4.tcp_mtu_probing", MtuProbe),
    moot(
        "net.ipv4.tcp_no_metrics_save",
        "no state of ended connections is kept",
    ),
    is("net.ipv4.tcp_orphan_retries", OrphanRetries),
    seconds("net.ipv4.tcp_probe_interval", ProbeInterval),
    row("net.ipv4.tcp_recovery", Fixed("1", RACK)),
    is("net.ipv4.tcp_retries2", Retries),
    row(
        "net.ipv4.tcp_rmem",
        Sizes {
            initial: ReceiveBuffer,
            max: ReceiveBufferMax,
        },
    ),
    is("net.ipv4.tcp_rto_max_ms", RtoMax),
    is("net.ipv4.tcp_sack", Sack),
    row(
        "net.ipv4.tcp_slow_start_after_idle",
        Fixed("1", "a window that has not been used is not trusted"),
    ),
    is("net.ipv4.tcp_syn_retries", SynRetries),
    is("net.ipv4.tcp_synack_retries", SynAckRetries),
    is("net.ipv4.tcp_syncookies", Syncookies),
    is("net.ipv4.tcp_timestamps", Timestamps),
    moot(
        "net.ipv4.tcp_tw_reuse",
        "an outgoing port in TIME-WAIT is taken again when it is safe",
    ),
    is("net.ipv4.tcp_window_scaling", WindowScaling),
    row(
        "net.ipv4.tcp_wmem",
        Sizes {
            initial: SendBuffer,
            max: SendBufferMax,
        },
    ),
    moot("net.ipv6.conf.all.accept_ra", SLAAC),
    moot("net.ipv6.conf.all.autoconf", SLAAC),
    moot(
        "net.ipv6.conf.all.disable_ipv6",
        "a stack without an IPv6 address does not use IPv6",
    ),
    row("net.ipv6.conf.all.forwarding", Network(Forwarding)),
    is("net.ipv6.ip6frag_high_thresh", FragmentsMax),
    // FreeBSD's boot settings.
    moot("hz", EXACT),
    moot("physmem", "memory is taken by need and given back"),
    moot("memsz_MB", "buffers need no reserved pages"),
    moot("fd_reserve", KERNEL),
    moot("kern.ncallout", EXACT),
    moot("kern.maxfiles", KERNEL),
    moot(
        "kern.features.inet6",
        "a stack without an IPv6 address does not use IPv6",
    ),
    moot("kern.ipc.maxsockets", PROCESS),
    is("kern.ipc.somaxconn", BacklogMax),
    moot(
        "kern.ipc.maxsockbuf",
        "the kernel's own net.core.rmem_max and wmem_max bound buffers",
    ),
    moot("net.fibs", "routing tables have any number from 1 to 2^32"),
    moot("net.inet.tcp.syncache.hashsize", PROCESS),
    moot("net.inet.tcp.syncache.bucketlimit", PROCESS),
    moot("net.inet.tcp.tcbhashsize", PROCESS),
    row("net.add_addr_allfibs", Network(ConnectsAllTables)),
    moot(
        "net.link.ether.inet.maxhold",
        "packets wait for a neighbour up to a limit of 256",
    ),
    // FreeBSD's TCP.
    moot(
        "net.inet.tcp.fast_finwait2_recycle",
        "net.inet.tcp.finwait2_timeout sets the time",
    ),
    is("net.inet.tcp.finwait2_timeout", FinWait2),
    is("net.inet.tcp.maxtcptw", TimeWaitsMax),
    is("net.inet.tcp.sendspace", SendBuffer),
    is("net.inet.tcp.recvspace", ReceiveBuffer),
    moot(
        "net.inet.tcp.nolocaltimewait",
        "TIME-WAIT costs 64 bytes and delays no program",
    ),
    row(
        "net.inet.tcp.cc.algorithm",
        Choice(CongestionControl, FREEBSD_CONGESTION),
    ),
    row(
        "net.inet.tcp.cc.available",
        Fixed("cubic newreno dctcp bbr", "these are built in"),
    ),
    row("net.inet.tcp.functions_default", Fixed("freebsd", RACK)),
    moot("net.inet.tcp.hpts.skip_swi", HPTS),
    moot("net.inet.tcp.hpts.minsleep", HPTS),
    moot("net.inet.tcp.hpts.maxsleep", HPTS),
    is("net.inet.tcp.sendbuf_max", SendBufferMax),
    is("net.inet.tcp.recvbuf_max", ReceiveBufferMax),
    row(
        "net.inet.tcp.sendbuf_auto",
        Fixed("1", "send buffers grow by need"),
    ),
    row(
        "net.inet.tcp.recvbuf_auto",
        Fixed("1", "receive buffers grow by need"),
    ),
    moot(
        "net.inet.tcp.sendbuf_inc",
        "send buffers grow with the congestion window",
    ),
    moot(
        "net.inet.tcp.recvbuf_inc",
        "receive buffers grow with the bytes of a round trip",
    ),
    is("net.inet.tcp.sack.enable", Sack),
    is("net.inet.tcp.ecn.enable", Ecn),
    is("net.inet.tcp.syncookies", Syncookies),
    row("net.inet.tcp.msl", Is(TimeWait, Half)),
    row(
        "net.inet.tcp.delayed_ack",
        Is(DelayedAck, On(DELAYED_ACK_MS)),
    ),
    row("net.inet.tcp.rfc1323", Is(WindowScaling, Same)),
    is("net.inet.tcp.keepidle", KeepIdle),
    is("net.inet.tcp.keepintvl", KeepInterval),
    is("net.inet.tcp.keepcnt", KeepProbes),
    is("net.inet.tcp.always_keepalive", KeepAlways),
    is("net.inet.tcp.rexmit_min", RtoMin),
    is("net.inet.tcp.initcwnd_segments", InitialWindow),
    is("net.inet.tcp.pmtud_blackhole_detection", MtuProbe),
    is("net.inet.tcp.blackhole", Blackhole),
    is("net.inet.udp.blackhole", UdpBlackhole),
    // FreeBSD's packet filter.
    seconds("net.inet.ip.fw.dyn_ack_lifetime", FilterAck),
    seconds("net.inet.ip.fw.dyn_syn_lifetime", FilterSyn),
    seconds("net.inet.ip.fw.dyn_fin_lifetime", FilterFin),
    seconds("net.inet.ip.fw.dyn_rst_lifetime", FilterRst),
    seconds("net.inet.ip.fw.dyn_udp_lifetime", FilterUdp),
    seconds("net.inet.ip.fw.dyn_short_lifetime", FilterShort),
    is("net.inet.ip.fw.dyn_max", FilterMax),
    is("net.inet.ip.fw.dyn_keepalive", FilterKeepalive),
    // FreeBSD's IP.
    moot("net.inet.ip.redirect", "redirects are not sent"),
    row("net.inet.ip.forwarding", Network(Forwarding)),
    row("net.inet6.ip6.forwarding", Network(Forwarding)),
    row(
        "net.inet.ip.portrange.randomized",
        Fixed("1", "outgoing ports are always random"),
    ),
    moot(
        "net.inet.ip.portrange.randomtime",
        "outgoing ports are always random",
    ),
    is("net.inet.ip.portrange.first", PortFirst),
    is("net.inet.ip.portrange.last", PortLast),
    moot("net.inet6.ip6.auto_linklocal", SLAAC),
    moot("net.inet6.ip6.accept_rtadv", SLAAC),
    moot("net.inet6.icmp6.rediraccept", SLAAC),
];
