//! Frames borrowed from the memory of the DPDK process.

use slipstack_mem::RawSlice;

/// The bytes of a cell that its reader has not released.
#[inline]
pub(super) fn borrowed<'a>(cell: RawSlice<'a>) -> &'a [u8] {
    // SAFETY: the cell is in a region that this slot shares only with the process of the device,
    // which belongs to the keeper's user and writes no cell that has not been released.
    unsafe { cell.bytes() }
}
