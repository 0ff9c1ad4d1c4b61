//! Recorded options, applied to a socket that has been decided since.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::kernel::Kernel;
use crate::socket::Stream;
use crate::socket::ancillary::{TIMESTAMP_NEW, TIMESTAMPING_NEW, TIMESTAMPNS_NEW};
use crate::socket::description::{Decided, Description};
use crate::socket::options::Options;

/// Applies the options recorded before the socket was a stream.
pub(crate) fn apply_stream_options(socket: &Arc<Description>, stream: &Stream) {
    let (options, owner) = {
        let cold = socket.cold.lock();
        (cold.options.clone(), cold.owner)
    };
    if owner.is_any() {
        stream.set_owned(true);
    }
    if !options.is_empty() {
        socket.error_queue.set(options.error_queue_messages());
        stream.apply(&options);
    }
}

pub(crate) fn apply_dgram_options(socket: &Arc<Description>) {
    let options = socket.cold.lock().options.clone();
    if let Some(Decided::Dgram(dgram)) = socket.decided() {
        socket.error_queue.set(options.error_queue_messages());
        dgram.apply_now(|| socket.cold.lock().options.clone());
        dgram.shutdown(socket.early_shut.load(Ordering::Relaxed));
    }
}

/// Applies recorded options to a connection that has come from another process.
pub(crate) fn set_recorded_options(socket: &Arc<Description>, stream: &Stream) {
    let options = socket.cold.lock().options.clone();
    for set in options.all() {
        if let Some(option) = options.for_stack(set.level, set.name) {
            stream.set_option(option);
        }
    }
    stream.attachment().commands();
}

/// Applies an option that has just been set to a connection.
pub(crate) fn set_on_stream(
    kernel: &dyn Kernel,
    (socket, stream): (&Arc<Description>, &Stream),
    level: i32,
    name: i32,
    options: &Options,
) {
    if let Some(option) = options.for_stack(level, name) {
        stream.set_option(option);
        if (level, name) == (libc::IPPROTO_TCP, libc::TCP_CORK) {
            stream.attachment().after_push(kernel, socket.id);
        }
        // Before anything more is written: if this process is killed, that goes this way, or is
        // reset. A thread that drives the engine just now sees to it a moment later.
        if option.outlives_program() {
            stream.attachment().commands();
        }
    }
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_LINGER) => stream.apply_linger(options),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => stream.apply_inline(options),
        (libc::IPPROTO_TCP, libc::TCP_INQ)
        | (
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMP
            | libc::SO_TIMESTAMPNS
            | TIMESTAMP_NEW
            | TIMESTAMPNS_NEW
            | libc::SO_TIMESTAMPING
            | TIMESTAMPING_NEW,
        ) => stream.apply_requested(options),
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => {
            stream.apply_unsent_low(options);
            socket.on_change();
        }
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => {
            stream.apply_low_water(options);
            socket.on_change();
        }
        _ => {}
    }
}
