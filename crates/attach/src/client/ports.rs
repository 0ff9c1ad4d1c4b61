//! Ports of the programs of an instance.

use slipstack_channel::Transport;
use slipstack_channel::control::StatusReport;
use slipstack_channel::report::ON_KERNEL;

/// Returns whether a program of an instance has bound the port.
pub(super) fn has_bound(report: &StatusReport, transport: Transport, port: u16) -> bool {
    let programs = report.instances.iter().flat_map(|it| &it.programs);
    let mut sockets = programs.flat_map(|program| &program.sockets);
    sockets.any(|socket| {
        socket.kind == transport.name()
            && socket.remote.is_none()
            && socket.local.is_some_and(|local| local.port() == port)
            && socket.place != ON_KERNEL
    })
}
