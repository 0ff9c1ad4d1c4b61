//! Socket options that engines act on, each declared in one row.

use core::time::Duration;

use crate::int::FromInt;
use crate::words::{WORDS, Words};
use crate::{
    ChooserPart, Congestion, FastOpenKeys, KeepAlive, MtuDiscovery, MulticastOption, PortRange,
};

/// Levels of `setsockopt`.
const IP: i32 = 0;
const SOCKET: i32 = 1;
const TCP: i32 = 6;
const UDP: i32 = 17;
const IPV6: i32 = 41;

/// Declares the options: number in shared memory, name, type, the field that keeps the value for a
/// connection that is to be, and the level and name by which a program sets it, if it does so by an
/// int that says all.
macro_rules! options {
    ($(
        $(#[$doc:meta])* $number:literal $name:ident($value:ty) $(=> $field:ident: $kept:ty)?
            $(, int $level:ident $set_by:literal)?;
    )*) => {
        /// A change to one option of a socket.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SocketOption { $($(#[$doc])* $name($value),)* }

        impl SocketOption {
            /// Returns the option's number and the words of its value.
            pub fn encode(self) -> (u8, [u64; WORDS]) {
                match self { $(Self::$name(value) => ($number, value.to_words()),)* }
            }

            /// Returns the option that a program sets by an int; `None` if the int is invalid, or
            /// more than this int determines the option.
            pub fn from_int(level: i32, name: i32, int: i32) -> Option<Self> {
                Some(match (level, name) {
                    $($(($level, $set_by) => Self::$name(<$value>::from_int(int)?),)?)*
                    _ => return None,
                })
            }

            /// Returns the option that was encoded; `None` if no program of this version writes
            /// these numbers.
            pub fn decode(number: u8, words: [u64; WORDS]) -> Option<Self> {
                Some(match number {
                    $($number => Self::$name(<$value>::from_words(words)?),)*
                    _ => return None,
                })
            }
        }

        /// Options that can be set before a connection exists. `None` = the configuration's
        /// default.
        #[derive(Clone, Debug, PartialEq, Eq, Default)]
        pub struct SocketOptions {
            $($(
                #[doc = concat!("[`SocketOption::", stringify!($name), "`]")]
                pub $field: $kept,
            )?)*
        }

        impl SocketOptions {
            /// Keeps an option, if it is one that lasts.
            pub fn set(&mut self, option: SocketOption) {
                match option {
                    $(SocketOption::$name(value) => {
                        let _ = value;
                        $(self.$field = value.into();)?
                    })*
                }
                // Linux: sk_priority is that of the option that was set last, sk_userlocks what all
                // of them say.
                match option {
                    SocketOption::Tos(_) => self.priority = 0,
                    SocketOption::SndBuf(_) => self.buf_lock = self.buf_lock.map(|it| it | 1),
                    SocketOption::RcvBuf(_) => self.buf_lock = self.buf_lock.map(|it| it | 2),
                    _ => {}
                }
            }
        }
    };
}

impl SocketOption {
    /// Returns whether the keeper has to know it to end a killed program's connection: the way, the
    /// type of service and the hop limit of its packets, and whether they are to be a reset.
    pub const fn outlives_program(&self) -> bool {
        matches!(
            self,
            SocketOption::Mark(_)
                | SocketOption::Table(_)
                | SocketOption::Link(_)
                | SocketOption::Priority(_)
                | SocketOption::Tos(_)
                | SocketOption::TosV6(_)
                | SocketOption::Ttl(_)
                | SocketOption::TtlV6(_)
                | SocketOption::ResetsAtEnd(_)
        )
    }
}

options! {
    1 NoDelay(bool) => no_delay: bool, int TCP 1;
    2 Cork(bool) => cork: bool, int TCP 3;
    3 QuickAck(bool) => quick_ack: bool, int TCP 12;
    4 KeepAlive(KeepAlive) => keep_alive: KeepAlive;
    /// `None` switches it off.
    5 UserTimeout(Option<Duration>) => user_timeout: Option<Duration>;
    /// Bytes of a fixed receive buffer (switches auto-tuning off).
    6 RcvBuf(u32) => rcvbuf: Option<u32>;
    /// Bytes of a fixed send buffer (switches auto-tuning off).
    7 SndBuf(u32) => sndbuf: Option<u32>;
    8 Congestion(Congestion) => congestion: Option<Congestion>;
    /// Upper limit of the MSS, both announced and used.
    9 MaxSeg(Option<u16>) => mss: Option<u16>, int TCP 2;
    /// Time for which an orphan stays in FIN-WAIT-2.
    10 Linger2(Option<Duration>) => linger2: Option<Duration>;
    /// Type of service of IPv4 packets.
    11 Tos(u8) => tos: u8;
    /// Time to live of IPv4 packets; 0 = the link's.
    12 Ttl(u8) => ttl: u8;
    /// Traffic class of IPv6 packets.
    13 TosV6(u8) => tos_v6: u8;
    /// Hop limit of IPv6 packets; 0 = the link's.
    14 TtlV6(u8) => ttl_v6: u8;
    /// Limit of a listener's connections whose data was accepted with the SYN and whose handshake
    /// is not complete (RFC 7413 5.1).
    15 FastOpen(u32) => fast_open_queue: u32, int TCP 23;
    /// An active open may put data into its SYN (RFC 7413).
    16 FastOpenConnect(bool) => fast_open: bool, int TCP 30;
    /// Timeouts of a listener's SYN-ACK before an ACK without data opens a connection
    /// (TCP_DEFER_ACCEPT).
    17 DeferAccept(u8) => defer_accept: u8;
    /// Retransmissions of a SYN (TCP_SYNCNT).
    18 SynCount(Option<u8>) => syn_retries: Option<u8>, int TCP 7;
    /// Largest window that is announced (TCP_WINDOW_CLAMP).
    19 WindowClamp(Option<u32>) => window_clamp: Option<u32>, int TCP 10;
    /// Range of the local port, if the stack picks it (IP_LOCAL_PORT_RANGE).
    20 PortRange(PortRange) => port_range: PortRange;
    /// Joined datagrams are delivered as they come (UDP_GRO).
    21 TakesJoined(bool) => takes_joined: bool, int UDP 104;
    /// Path MTU discovery of datagrams over IPv4.
    22 MtuDiscovery(MtuDiscovery) => mtu_discovery: MtuDiscovery;
    /// Path MTU discovery of datagrams over IPv6.
    23 MtuDiscoveryV6(MtuDiscovery) => mtu_discovery_v6: MtuDiscovery;
    /// Errors about datagrams over IPv4 are reported to unconnected sockets too (IP_RECVERR).
    24 ReturnsV4(bool) => returns_v4: bool, int IP 11;
    /// Errors about datagrams over IPv6 are reported to unconnected sockets too (IPV6_RECVERR).
    25 ReturnsV6(bool) => returns_v6: bool, int IPV6 25;
    /// The mark that rules may match (SO_MARK).
    26 Mark(u32) => mark: u32;
    /// The table that is looked up after that of our own addresses (SO_SETFIB); 0 = as the rules
    /// say.
    27 Table(u16) => table: u16;
    /// The link that packets leave and come by (SO_BINDTODEVICE): its number plus one; 0 = any.
    28 Link(u16) => link: u16;
    29 Multicast(MulticastOption);
    /// Rank of a socket in its SO_REUSEPORT group: members are in ascending order; 0 = in none.
    30 Rank(u64) => rank: u64;
    /// A part of the program that chooses a socket of the group.
    31 Chooser(ChooserPart);
    /// A datagram socket that receives nothing until it is connected: before, its peer's datagrams
    /// are another socket's.
    32 AwaitsPeer(bool) => awaits_peer: bool;
    /// Connections may be from an address that is not ours (IP_TRANSPARENT).
    33 Transparent(bool) => is_transparent: bool;
    /// Datagrams over IPv4 leave without a checksum (SO_NO_CHECK).
    34 NoChecksum(bool) => no_checksum: bool;
    /// Datagrams over IPv6 leave without a checksum (UDP_NO_CHECK6_TX).
    35 NoChecksumV6(bool) => no_checksum_v6: bool, int UDP 101;
    /// Datagrams over IPv6 that have no checksum are taken (UDP_NO_CHECK6_RX).
    36 TakesNoChecksumV6(bool) => takes_no_checksum_v6: bool, int UDP 102;
    /// Largest pacing rate in bytes a second (SO_MAX_PACING_RATE); 0 = no limit.
    37 MaxPacingRate(u32) => max_pacing_rate: u32;
    /// The class of packets (SO_PRIORITY) plus one; 0 = by the type of service of IPv4, to which
    /// [`SocketOption::Tos`] sets it back.
    38 Priority(u8) => priority: u8;
    /// Shortest retransmission timeout beyond the round trip, in microseconds; 0 = the default.
    39 RtoMin(u32) => rto_min_us: u32, int TCP 45;
    /// Longest retransmission timeout in milliseconds; 0 = the default.
    40 RtoMax(u32) => rto_max_ms: u32, int TCP 44;
    /// Longest delay of an ACK in microseconds; 0 = the default.
    41 AckDelayMax(u32) => ack_delay_max_us: u32, int TCP 46;
    /// Smallest time to live of a peer's IPv4 packets (IP_MINTTL); 0 = any.
    42 HopsMin(u8) => hops_min: u8;
    /// Smallest hop limit of a peer's IPv6 packets (IPV6_MINHOPCOUNT); 0 = any.
    43 HopsMinV6(u8) => hops_min_v6: u8;
    /// Data of a SYN is accepted, and sent, without a cookie (TCP_FASTOPEN_NO_COOKIE).
    44 FastOpenNoCookie(bool) => fast_open_no_cookie: bool, int TCP 34;
    /// Keys of a listener's Fast Open cookies (TCP_FASTOPEN_KEY).
    45 FastOpenKeys(FastOpenKeys) => fast_open_keys: Option<FastOpenKeys>;
    /// The first timeouts of a connection with few segments in flight are equally long
    /// (TCP_THIN_LINEAR_TIMEOUTS).
    46 Linear(bool) => is_linear: bool, int TCP 16;
    /// The headers of the SYNs of a listener's connections are kept (TCP_SAVE_SYN).
    47 SaveSyn(bool) => saves_syn: bool, int TCP 27;
    /// Buffers that do not tune themselves: 1 = sending, 2 = receiving (SO_BUF_LOCK); a size that
    /// is set later adds its buffer.
    48 BufLock(u32) => buf_lock: Option<u32>, int SOCKET 72;
    /// An active open begins with data that is at hand (MSG_FASTOPEN), and fails if the stack's
    /// client side of Fast Open is off.
    49 FastOpenSend(bool) => fast_open_send: bool;
    /// Cookie of a socket's kernel part, by which maps of sockets name it; 0 = it has none.
    50 Cookie(u64) => cookie: u64;
    /// The kernel's part of a datagram socket has gone to another program, too: what is unread when
    /// this one closes it is that program's.
    51 LeavesUnread(bool) => leaves_unread: bool;
    /// A connection is reset when its program ends (SO_LINGER with zero time).
    52 ResetsAtEnd(bool) => resets_at_end: bool;
}

#[cfg(test)]
mod tests;
