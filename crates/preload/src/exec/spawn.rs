//! Descriptors that `posix_spawn` gives to the new program: ends of pairs take the place of our
//! connections.

use std::ffi::CStr;

use slipstack_posix::{LentToShell, Passing, Process, SpawnLending};

use super::fitness::{Fitness, judge};
use super::sys::{Action, Actions};

/// Connections that go to a new program.
#[derive(Default)]
pub struct ChildConnections {
    /// Connections for a program without the library.
    passing: Passing,
    /// Connections for a program with the library.
    spawn_lending: Option<SpawnLending>,
    /// The numbers that the text for the new program describes.
    described: Vec<i32>,
    /// Our connections, and the numbers under which it finds them.
    copies: Vec<(i32, i32)>,
    /// Other sockets of ours, in the same way.
    handed: Vec<(i32, i32)>,
    /// The texts about these.
    handed_texts: Vec<String>,
}

impl ChildConnections {
    /// Changes `actions` where they name connections of ours, or leave them open.
    pub fn prepare(process: &Process, actions: &mut Actions, fitness: Fitness) -> ChildConnections {
        let mut connections = ChildConnections::default();
        let all: Vec<Action> = actions.all().collect();
        let closed_from = all.iter().filter_map(|action| match action {
            Action::CloseFrom(number) => Some(*number),
            _ => None,
        });
        let closed_from = closed_from.min().unwrap_or(i32::MAX);
        // Closing a range would close our control sockets too.
        let is_served = fitness == Fitness::Served;
        let may_ask = is_served && closed_from == i32::MAX;
        // A number that an action has replaced has a different file.
        let mut replaced: Vec<i32> = Vec::new();
        for (index, action) in all.into_iter().enumerate() {
            if let Action::Copy { to, .. } | Action::Replace(to) = action {
                connections.handed.retain(|(_, earlier)| *earlier != to);
            }
            match action {
                Action::Copy { from, to } => {
                    if process.is_ours(from)
                        && !replaced.contains(&from)
                        && !(is_served && connections.hand(process, from, to))
                        && let Some(end) = connections.add(process, from, to, may_ask)
                    {
                        actions.set_source(index, end);
                    }
                    replaced.push(to);
                }
                Action::Replace(number) => replaced.push(number),
                Action::CloseFrom(_) | Action::Other => {}
            }
        }
        for number in process.inherited_connections() {
            if number < closed_from
                && !replaced.contains(&number)
                && let Some(end) = connections.add(process, number, number, may_ask)
            {
                actions.put_first(end, number);
            }
        }
        for number in process.inherited_unconnected() {
            if is_served && number < closed_from && !replaced.contains(&number) {
                connections.handed.push((number, number));
            }
        }
        connections.handed_texts = process.describe_handed(&connections.handed);
        if !connections.copies.is_empty() {
            connections.spawn_lending = process.prepare_spawn_lending(&connections.copies);
        }
        for control in connections
            .spawn_lending
            .iter()
            .flat_map(SpawnLending::controls)
        {
            actions.put_first(control, control);
        }
        connections
    }

    /// Returns whether number `from` is a socket of ours, but no connection; the program finds it
    /// under `to`.
    fn hand(&mut self, process: &Process, from: i32, to: i32) -> bool {
        let is_it = !process.is_connection(from);
        if is_it {
            self.handed.push((from, to));
        }
        is_it
    }

    /// Returns the descriptor to copy to `to` in place of our number `from`; `None`: that number
    /// itself.
    fn add(&mut self, process: &Process, from: i32, to: i32, may_ask: bool) -> Option<i32> {
        if may_ask && process.is_connection(from) {
            self.copies.push((from, to));
            return None;
        }
        self.described.push(to);
        // Standard output is not read from.
        let reads = !matches!(to, libc::STDOUT_FILENO | libc::STDERR_FILENO);
        process.prepare_passing(&mut self.passing, from, reads)
    }

    /// Returns the text for the new program; `None` if it gets nothing of ours.
    pub fn described(&self) -> Option<String> {
        let mut described: Vec<String> = self.described.iter().map(|fd| format!("c{fd}")).collect();
        described.extend(
            self.spawn_lending
                .iter()
                .flat_map(SpawnLending::described)
                .cloned(),
        );
        described.extend(self.handed_texts.iter().cloned());
        (!described.is_empty()).then(|| described.join(","))
    }

    /// Whether `actions` are as they were.
    pub fn is_empty(&self) -> bool {
        self.passing.is_empty() && self.spawn_lending.is_none()
    }

    /// The program has been started, or not.
    pub fn end(self, process: &'static Process, is_started: bool) {
        process.end_passing(self.passing, is_started);
        if let Some(spawn_lending) = self.spawn_lending {
            process.end_spawn_lending(spawn_lending, is_started);
        }
        if is_started {
            process.end_handing(self.handed.iter().map(|(from, _)| *from));
        }
    }
}

/// The shell of `system` and `popen`.
const SHELL: &CStr = c"/bin/sh";

/// Sockets for a shell that libc starts itself, out of our sight: connections are lent before, to
/// whoever has the other ends of their control sockets then.
pub struct ShellConnections {
    lent: Option<LentToShell>,
    handed: Vec<String>,
}

impl ShellConnections {
    /// `None`: the program has no sockets that a new one would have, or the shell could not use
    /// them.
    pub fn lend(process: &'static Process) -> Option<ShellConnections> {
        let connections = process.inherited_connections();
        let others = process.inherited_unconnected();
        let is_any = !connections.is_empty() || !others.is_empty();
        if !is_any || judge(SHELL, false) != Ok(Fitness::Served) {
            return None;
        }
        let lent = (!connections.is_empty()).then(|| process.lend_to_shell(&connections));
        let copies: Vec<(i32, i32)> = others.iter().map(|it| (*it, *it)).collect();
        let handed = process.describe_handed(&copies);
        process.end_handing(others.into_iter());
        let lent = lent.flatten();
        (lent.is_some() || !handed.is_empty()).then_some(ShellConnections { lent, handed })
    }

    /// Returns the text for the shell.
    pub fn described(&self) -> String {
        let lent = self.lent.iter().flat_map(LentToShell::described);
        let all: Vec<&str> = lent.chain(&self.handed).map(String::as_str).collect();
        all.join(",")
    }
}
