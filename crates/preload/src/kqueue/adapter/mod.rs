//! Functions of F-Stack's LD_PRELOAD adapter for programs that are linked with it (`ff_adapter.h`).

pub mod abi;
