//! What `posix_spawn` gives to the new program: ends of pairs take the place of our connections.

use slipstack_posix::{Passing, Process};

use super::sys::{Action, Actions};

/// Connections that go to a new program.
#[derive(Default)]
pub struct Outfit {
    passing: Passing,
    /// The numbers under which it finds them.
    pub told: Vec<i32>,
}

impl Outfit {
    /// Changes `actions` where they name connections of ours, or leave them open.
    pub fn prepare(process: &Process, actions: &mut Actions) -> Outfit {
        let mut outfit = Outfit::default();
        let all: Vec<Action> = actions.all().collect();
        // A number that an action has replaced is not what we know it as any more.
        let mut replaced: Vec<i32> = Vec::new();
        let mut closed_from = i32::MAX;
        for (index, action) in all.into_iter().enumerate() {
            match action {
                Action::Copy { from, to } => {
                    if process.is_ours(from) && !replaced.contains(&from) {
                        outfit.told.push(to);
                        if let Some(end) = outfit.end_for(process, from, to) {
                            actions.set_source(index, end);
                        }
                    }
                    replaced.push(to);
                }
                Action::Replace(number) => replaced.push(number),
                Action::CloseFrom(number) => closed_from = closed_from.min(number),
                Action::Other => {}
            }
        }
        for number in process.inherited_connections() {
            if number < closed_from && !replaced.contains(&number) {
                outfit.told.push(number);
                if let Some(end) = outfit.end_for(process, number, number) {
                    actions.put_first(end, number);
                }
            }
        }
        outfit
    }

    /// What is to be copied to `to` in place of our number `from`.
    fn end_for(&mut self, process: &Process, from: i32, to: i32) -> Option<i32> {
        // Nobody reads from standard output.
        let reads = !matches!(to, libc::STDOUT_FILENO | libc::STDERR_FILENO);
        process.prepare_passing(&mut self.passing, from, reads)
    }

    /// Whether `actions` are as they were.
    pub fn is_empty(&self) -> bool {
        self.passing.is_empty()
    }

    /// The program has been started, or not.
    pub fn end(self, process: &'static Process, is_started: bool) {
        process.end_passing(self.passing, is_started);
    }
}
