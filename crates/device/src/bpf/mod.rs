//! eBPF without a compiler: a small assembler, the three programs, and the system calls for maps,
//! programs and links.

pub(crate) mod asm;
pub(crate) mod programs;
pub(crate) mod sys;
