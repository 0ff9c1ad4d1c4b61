//! Recorded options of a connection that act on the program's side of it.

use crate::socket::Stream;
use crate::socket::ancillary::RequestedControl;
use crate::socket::options::Options;
use crate::socket::options::meaning::linger_of;

impl Stream {
    /// Applies all that have been recorded before there was a connection.
    pub(crate) fn apply(&self, options: &Options) {
        self.apply_linger(options);
        self.apply_inline(options);
        self.apply_requested(options);
        self.apply_unsent_low(options);
        self.apply_low_water(options);
    }

    /// SO_LINGER.
    pub(crate) fn apply_linger(&self, options: &Options) {
        let Some(bytes) = options.bytes(libc::SOL_SOCKET, libc::SO_LINGER) else {
            return;
        };
        *self.linger.lock() = linger_of(bytes);
    }

    /// SO_OOBINLINE.
    pub(crate) fn apply_inline(&self, options: &Options) {
        self.set_urgent_inline(options.is_on(libc::SOL_SOCKET, libc::SO_OOBINLINE));
    }

    /// TCP_INQ, SO_TIMESTAMP and its relatives.
    pub(crate) fn apply_requested(&self, options: &Options) {
        self.set_requested(RequestedControl::of_stream(options));
    }

    /// TCP_NOTSENT_LOWAT.
    /// DEVIATION(Linux): without it the system's `tcp_notsent_lowat` is not used.
    pub(crate) fn apply_unsent_low(&self, options: &Options) {
        let bytes = options.int(libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
        self.set_unsent_low(bytes.unwrap_or(0).cast_unsigned());
    }

    /// SO_RCVLOWAT, as sock_set_rcvlowat().
    pub(crate) fn apply_low_water(&self, options: &Options) {
        if let Some(bytes) = options.int(libc::SOL_SOCKET, libc::SO_RCVLOWAT) {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            self.set_low_water(bytes.max(1));
        }
    }
}
