//! eBPF without a compiler: a small assembler, the four programs, and the system calls for maps,
//! programs and links. Programs of the user's come from object files.

pub(crate) mod asm;
pub(crate) mod btf;
pub(crate) mod filters;
pub(crate) mod maps;
pub(crate) mod programs;
pub(crate) mod redirect;
pub(crate) mod rules;
pub(crate) mod sys;
mod transit;
pub(crate) mod user;
