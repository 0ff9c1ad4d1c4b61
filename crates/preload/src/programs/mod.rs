//! Programs of eBPF that choose a socket of a SO_REUSEPORT group: noted as they are loaded.

pub mod abi;
