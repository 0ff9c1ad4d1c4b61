//! libc's `syscall()`: calls on our descriptors go to the interposed functions.

pub mod abi;
mod waits;

/// Bytes of the kernel's signal sets; libc's begin with the same word.
const KERNEL_SET: usize = 8;
