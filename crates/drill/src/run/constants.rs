//! The constants that scripts name, by Linux's numbers.

use slipstack_posix::Errno;

macro_rules! constants {
    ($($name:ident),* $(,)?) => {
        /// The value of a constant.
        pub fn value(name: &str) -> Option<i64> {
            match name {
                $(stringify!($name) => Some(i64::from(libc::$name)),)*
                _ => beyond_libc(name),
            }
        }
    };
}

constants!(
    AF_INET,
    AF_INET6,
    PF_INET,
    PF_INET6,
    SOCK_STREAM,
    SOCK_DGRAM,
    SOCK_NONBLOCK,
    SOCK_CLOEXEC,
    IPPROTO_TCP,
    IPPROTO_UDP,
    IPPROTO_IP,
    IPPROTO_IPV6,
    SOL_SOCKET,
    SOL_IP,
    SOL_TCP,
    SOL_UDP,
    SOL_IPV6,
    SO_REUSEADDR,
    SO_REUSEPORT,
    SO_KEEPALIVE,
    SO_LINGER,
    SO_SNDBUF,
    SO_RCVBUF,
    SO_ERROR,
    SO_RCVTIMEO,
    SO_SNDTIMEO,
    SO_RCVLOWAT,
    SO_OOBINLINE,
    SO_TIMESTAMP,
    SO_BUSY_POLL,
    SO_PRIORITY,
    SO_ACCEPTCONN,
    SO_TYPE,
    SO_DOMAIN,
    SO_PROTOCOL,
    SO_BROADCAST,
    SO_ZEROCOPY,
    TCP_NODELAY,
    TCP_CORK,
    TCP_MAXSEG,
    TCP_KEEPIDLE,
    TCP_KEEPINTVL,
    TCP_KEEPCNT,
    TCP_SYNCNT,
    TCP_LINGER2,
    TCP_DEFER_ACCEPT,
    TCP_WINDOW_CLAMP,
    TCP_INFO,
    TCP_QUICKACK,
    TCP_CONGESTION,
    TCP_USER_TIMEOUT,
    TCP_FASTOPEN,
    TCP_FASTOPEN_CONNECT,
    TCP_NOTSENT_LOWAT,
    TCP_TIMESTAMP,
    TCP_THIN_LINEAR_TIMEOUTS,
    TCP_THIN_DUPACK,
    TCP_REPAIR,
    TCP_INQ,
    TCP_CM_INQ,
    IPV6_RECVERR,
    SCM_TIMESTAMP,
    SO_EE_ORIGIN_LOCAL,
    SO_EE_ORIGIN_ICMP,
    SO_EE_ORIGIN_ICMP6,
    TCP_SAVE_SYN,
    TCP_SAVED_SYN,
    IP_TOS,
    IP_TTL,
    IP_MTU_DISCOVER,
    IP_RECVERR,
    IP_MTU,
    IP_FREEBIND,
    IP_TRANSPARENT,
    IP_PMTUDISC_DO,
    IP_PMTUDISC_DONT,
    IP_PMTUDISC_WANT,
    IP_PMTUDISC_PROBE,
    IPV6_V6ONLY,
    IPV6_TCLASS,
    IPV6_UNICAST_HOPS,
    F_GETFL,
    F_SETFL,
    F_GETFD,
    F_SETFD,
    FD_CLOEXEC,
    O_RDWR,
    O_NONBLOCK,
    O_RDONLY,
    MSG_PEEK,
    MSG_DONTWAIT,
    MSG_NOSIGNAL,
    MSG_MORE,
    MSG_OOB,
    MSG_TRUNC,
    MSG_WAITALL,
    MSG_FASTOPEN,
    MSG_ERRQUEUE,
    MSG_EOR,
    MSG_CTRUNC,
    MSG_ZEROCOPY,
    POLLIN,
    POLLOUT,
    POLLERR,
    POLLHUP,
    POLLPRI,
    POLLRDHUP,
    POLLNVAL,
    POLLRDNORM,
    POLLWRNORM,
    EPOLL_CTL_ADD,
    EPOLL_CTL_MOD,
    EPOLL_CTL_DEL,
    EPOLLIN,
    EPOLLOUT,
    EPOLLERR,
    EPOLLHUP,
    EPOLLRDHUP,
    EPOLLPRI,
    EPOLLET,
    EPOLLONESHOT,
    SHUT_RD,
    SHUT_WR,
    SHUT_RDWR,
    INADDR_ANY,
);

/// Returns constants that the libc crate lacks.
fn beyond_libc(name: &str) -> Option<i64> {
    Some(match name {
        "FIONREAD" | "SIOCINQ" => 0x541b,
        "TIOCOUTQ" | "SIOCOUTQ" => 0x5411,
        "SIOCOUTQNSD" => 0x894b,
        "SIOCATMARK" => 0x8905,
        "FIONBIO" => 0x5421,
        _ => return None,
    })
}

/// A constant, or an error by its number as `ee_errno` has it.
pub fn number(name: &str) -> Option<i64> {
    value(name).or_else(|| errno(name).map(i64::from))
}

/// The number of an error by its name.
pub fn errno(name: &str) -> Option<i32> {
    let name = if name == "EWOULDBLOCK" {
        "EAGAIN"
    } else {
        name
    };
    Errno::named(name).map(|errno| errno.0)
}
