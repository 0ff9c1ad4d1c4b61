//! eBPF without a compiler: a small assembler, the four programs, and the system calls for maps,
//! programs and links.

pub(crate) mod asm;
pub(crate) mod filters;
pub(crate) mod programs;
pub(crate) mod sys;
mod transit;
