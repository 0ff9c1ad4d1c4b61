//! Sizes and contents of a connection's buffers (SO_SNDBUF, SO_RCVBUF, SO_MEMINFO), and the state
//! of its congestion control (TCP_CC_INFO).

use crate::calls::options::sockopt::put;
use crate::outcome::Outcome;
use crate::socket::Stream;
use crate::socket::description::Description;

/// asm-generic/socket.h.
const SO_MEMINFO: i32 = 55;
/// linux/tcp.h.
const TCP_CC_INFO: i32 = 26;

/// Writes one of them; returns its length, or `None` for an option that the kernel is to
/// answer.
pub(super) fn figures_of(
    (socket, stream): (&Description, &Stream),
    (level, name): (i32, i32),
    value: &mut [u8],
    size: impl Fn(i32) -> Outcome<u32>,
) -> Outcome<Option<usize>> {
    match (level, name) {
        // As on Linux for CUBIC and Reno; the values of other algorithms are not returned.
        (libc::IPPROTO_TCP, TCP_CC_INFO) => Ok(Some(0)),
        (libc::SOL_SOCKET, SO_MEMINFO) => {
            let numbers = memory_of(stream, size)?;
            let bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_ne_bytes()).collect();
            Ok(Some(put(value, &bytes)))
        }
        _ => {
            let size = tuned_buffer(socket, stream, level, name);
            Ok(size.map(|size| put(value, &size.to_ne_bytes())))
        }
    }
}

/// Returns the numbers in their order (linux/sock_diag.h, SK_MEMINFO_VARS). The stack allocates
/// nothing ahead, has no memory for options and no backlog, and drops no byte that it has taken.
fn memory_of(stream: &Stream, size: impl Fn(i32) -> Outcome<u32>) -> Outcome<[u32; 9]> {
    let bytes = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let (unread, queued) = (bytes(stream.unread()), bytes(stream.queued()));
    let (rcvbuf, sndbuf) = (size(libc::SO_RCVBUF)?, size(libc::SO_SNDBUF)?);
    Ok([unread, rcvbuf, queued, sndbuf, 0, queued, 0, 0, 0])
}

/// The size of a buffer of a connection's that the program has not set: one that was set stays as
/// it is, and the kernel's part knows it.
fn tuned_buffer(socket: &Description, stream: &Stream, level: i32, name: i32) -> Option<i32> {
    let (at, force) = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => (0, libc::SO_SNDBUFFORCE),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => (1, libc::SO_RCVBUFFORCE),
        _ => return None,
    };
    let (attachment, sock) = stream.attachment_and_sock();
    if !attachment.seen(sock).is_connected() {
        return None;
    }
    let cold = socket.cold.lock();
    let set = [name, force].map(|name| cold.options.bytes(level, name));
    if set != [None, None] {
        return None;
    }
    i32::try_from(stream.buffers()[at]).ok()
}
