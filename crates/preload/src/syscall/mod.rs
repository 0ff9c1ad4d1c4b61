//! libc's `syscall()`: calls that concern our descriptors take the hooked way.

pub mod abi;
