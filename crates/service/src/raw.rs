//! Received bytes as plain slices.

use slipstack_mem::RawSlice;

use crate::context::Context;

/// Borrows bytes of a receive ring of the channel whose owner is being called.
///
/// Private to this crate, whose [`Context`] exists only within
/// [`Owner::run`](slipstack_channel::Owner::run) and
/// [`Owner::on_datagram`](slipstack_channel::Owner::on_datagram).
#[inline]
pub(crate) fn bytes<'a, R>(slice: RawSlice<'a>, _within_call: &'a Context<'_, R>) -> &'a [u8] {
    // SAFETY: the channel was made by `Inside::new`, and its region is mapped by this process
    // alone while its engine runs (the keeper maps it once the engine has ended). The engine's
    // end, the only writer of the receive arena, is not at work: its engine is borrowed by the
    // turn that called the owner, and the result lives no longer than that call. The program's
    // end, which this crate alone holds, never writes to the receive arena.
    unsafe { slice.bytes() }
}
