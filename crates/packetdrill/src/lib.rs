//! The library that packetdrill loads to run its scripts on this stack.

mod abi;
mod device;
mod linked;
mod raw;
mod session;
