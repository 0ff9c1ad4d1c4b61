//! Settings with which a process is started.

use slipstack_channel::{Heuristics, LogLevel, Spin};

/// Circumstances of this process's start.
#[derive(Clone, Debug)]
pub struct Settings {
    pub spin: Spin,
    /// Time for which frames may gather under load while spinning is off; 0 = not at all.
    pub gather_us: u32,
    /// The heuristics that are in force.
    pub heuristics: Heuristics,
    /// A socket that policy gives to the stack fails where it cannot be had, instead of going to
    /// the kernel.
    pub strict: bool,
    /// Threads, and programs on different instances, may bind one port.
    pub has_ports_per_instance: bool,
    /// The level of sentences that [`Kernel::warn`] prints.
    pub verbosity: LogLevel,
    /// Is given a line for each socket that is placed.
    pub journal: Option<fn(&str)>,
    /// The program's name, for messages and reports.
    pub program: String,
}
