//! libc's `syscall()`: calls that concern our descriptors take the hooked way.

pub mod abi;
mod waits;

/// Bytes of the kernel's signal sets; libc's begin with the same word.
const KERNEL_SET: usize = 8;
