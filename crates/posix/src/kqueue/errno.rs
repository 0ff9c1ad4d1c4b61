//! FreeBSD's error numbers, which kevents carry.

use crate::errno::Errno;

impl Errno {
    /// Returns the error by FreeBSD's number. The first 34 are alike; an error that FreeBSD does
    /// not have becomes EIO.
    #[must_use]
    pub fn freebsd(self) -> i32 {
        match self.0 {
            libc::EDEADLK => 11,
            alike @ 0..=34 if alike != libc::EAGAIN => alike,
            libc::EAGAIN => 35,
            libc::EINPROGRESS => 36,
            libc::EALREADY => 37,
            libc::ENOTSOCK => 38,
            libc::EDESTADDRREQ => 39,
            libc::EMSGSIZE => 40,
            libc::EPROTOTYPE => 41,
            libc::ENOPROTOOPT => 42,
            libc::EPROTONOSUPPORT => 43,
            libc::ESOCKTNOSUPPORT => 44,
            libc::EOPNOTSUPP => 45,
            libc::EPFNOSUPPORT => 46,
            libc::EAFNOSUPPORT => 47,
            libc::EADDRINUSE => 48,
            libc::EADDRNOTAVAIL => 49,
            libc::ENETDOWN => 50,
            libc::ENETUNREACH => 51,
            libc::ENETRESET => 52,
            libc::ECONNABORTED => 53,
            libc::ECONNRESET => 54,
            libc::ENOBUFS => 55,
            libc::EISCONN => 56,
            libc::ENOTCONN => 57,
            libc::ESHUTDOWN => 58,
            libc::ETOOMANYREFS => 59,
            libc::ETIMEDOUT => 60,
            libc::ECONNREFUSED => 61,
            libc::ELOOP => 62,
            libc::ENAMETOOLONG => 63,
            libc::EHOSTDOWN => 64,
            libc::EHOSTUNREACH => 65,
            libc::ENOTEMPTY => 66,
            libc::EUSERS => 68,
            libc::EDQUOT => 69,
            libc::ESTALE => 70,
            libc::EREMOTE => 71,
            libc::ENOLCK => 77,
            libc::ENOSYS => 78,
            libc::EIDRM => 82,
            libc::ENOMSG => 83,
            libc::EOVERFLOW => 84,
            libc::ECANCELED => 85,
            libc::EILSEQ => 86,
            libc::EBADMSG => 89,
            libc::EMULTIHOP => 90,
            libc::ENOLINK => 91,
            libc::EPROTO => 92,
            libc::ENOTRECOVERABLE => 95,
            libc::EOWNERDEAD => 96,
            _ => libc::EIO,
        }
    }

    /// Returns the error for FreeBSD's number; one that Linux does not have becomes EIO.
    #[must_use]
    pub fn of_freebsd(number: i32) -> Errno {
        Errno(match number {
            11 => libc::EDEADLK,
            alike @ 0..=34 => alike,
            35 => libc::EAGAIN,
            36 => libc::EINPROGRESS,
            37 => libc::EALREADY,
            38 => libc::ENOTSOCK,
            39 => libc::EDESTADDRREQ,
            40 => libc::EMSGSIZE,
            41 => libc::EPROTOTYPE,
            42 => libc::ENOPROTOOPT,
            43 => libc::EPROTONOSUPPORT,
            44 => libc::ESOCKTNOSUPPORT,
            45 => libc::EOPNOTSUPP,
            46 => libc::EPFNOSUPPORT,
            47 => libc::EAFNOSUPPORT,
            48 => libc::EADDRINUSE,
            49 => libc::EADDRNOTAVAIL,
            50 => libc::ENETDOWN,
            51 => libc::ENETUNREACH,
            52 => libc::ENETRESET,
            53 => libc::ECONNABORTED,
            54 => libc::ECONNRESET,
            55 => libc::ENOBUFS,
            56 => libc::EISCONN,
            57 => libc::ENOTCONN,
            58 => libc::ESHUTDOWN,
            59 => libc::ETOOMANYREFS,
            60 => libc::ETIMEDOUT,
            61 => libc::ECONNREFUSED,
            62 => libc::ELOOP,
            63 => libc::ENAMETOOLONG,
            64 => libc::EHOSTDOWN,
            65 => libc::EHOSTUNREACH,
            66 => libc::ENOTEMPTY,
            68 => libc::EUSERS,
            69 => libc::EDQUOT,
            70 => libc::ESTALE,
            71 => libc::EREMOTE,
            77 => libc::ENOLCK,
            78 => libc::ENOSYS,
            82 => libc::EIDRM,
            83 => libc::ENOMSG,
            84 => libc::EOVERFLOW,
            85 => libc::ECANCELED,
            86 => libc::EILSEQ,
            89 => libc::EBADMSG,
            90 => libc::EMULTIHOP,
            91 => libc::ENOLINK,
            92 => libc::EPROTO,
            95 => libc::ENOTRECOVERABLE,
            96 => libc::EOWNERDEAD,
            _ => libc::EIO,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::kqueue::errno::Errno;

    #[test]
    fn error_numbers_round_trip() {
        for (linux, freebsd) in [
            (libc::EAGAIN, 35),
            (libc::EDEADLK, 11),
            (libc::ECONNRESET, 54),
            (libc::EPIPE, 32),
            (libc::EOVERFLOW, 84),
        ] {
            assert_eq!(Errno(linux).freebsd(), freebsd);
            assert_eq!(Errno::of_freebsd(freebsd), Errno(linux));
        }
        assert_eq!(Errno(9999).freebsd(), libc::EIO);
    }
}
