//! SO_TIMESTAMPING and SO_ATTACH_FILTER of connections, whose kernel's part has no data.

use crate::errno::Errno;
use crate::process::Process;
use crate::socket::ancillary::TIMESTAMPING_NEW;
use crate::socket::description::{Decided, Description};
use crate::socket::options::Options;
use crate::socket::{ErrorQueueMessages, stamping};

impl Process {
    /// Lets the kernel judge SO_TIMESTAMPING of a connection: its part has none, so that it refuses
    /// to count bytes.
    pub(super) fn judge_stamping(
        &self,
        socket: &Description,
        (level, name): (i32, i32),
        flags: i32,
    ) -> Result<(), Errno> {
        const COUNTS: u32 = stamping::OPT_ID | stamping::OPT_ID_TCP;
        let flags = flags.cast_unsigned();
        if flags & COUNTS == stamping::OPT_ID_TCP {
            return Err(Errno::EINVAL);
        }
        let others = (flags & !COUNTS).to_ne_bytes();
        self.try_on_kernel(socket, level, name, &others)
    }
}

/// Bytes of a connection that are not acknowledged count for SOF_TIMESTAMPING_OPT_ID.
pub(super) fn requested_messages(socket: &Description, options: &Options) -> ErrorQueueMessages {
    let requested = options.error_queue_messages();
    match socket.decided() {
        Some(Decided::Stream(stream)) if requested.stamps & stamping::OPT_ID_TCP == 0 => {
            ErrorQueueMessages {
                queued: u32::try_from(stream.queued()).unwrap_or(u32::MAX),
                ..requested
            }
        }
        _ => requested,
    }
}

/// `struct so_timestamping`: the flags, and the number of a card's clock.
pub(super) fn stamping_value(socket: &Description) -> [u8; 8] {
    let [a, b, c, d] = socket.cold.lock().options.timestamping().to_ne_bytes();
    [a, b, c, d, 0, 0, 0, 0]
}

pub(super) fn is_stamping(level: i32, name: i32) -> bool {
    level == libc::SOL_SOCKET && matches!(name, libc::SO_TIMESTAMPING | TIMESTAMPING_NEW)
}
