//! The control protocol: what an operator asks of the network, and changes.

use std::os::fd::OwnedFd;

use slipstack_channel::control::net::{
    Answer as NetAnswer, Call, Change, Denied, FilterChange, NetworkState, Query, VERSION,
    change_filter,
};
use slipstack_channel::control::{Refusal, Reply, add_line, text_file};

use slipstack_stack::Tunable;

use super::Server;
use super::clients::{Answer, refuse};
use crate::routes::check_forwarding;

/// New rules of one change, as bits of their ids.
const IDS_PER_CHANGE: u32 = 16;

impl Server {
    pub(super) fn on_call(&mut self, token: u64, call: Call, now: u64) -> Answer {
        if call.version != VERSION {
            let message = format!(
                "this keeper speaks version {VERSION} of the control protocol, the command version {}",
                call.version
            );
            return refuse(Refusal::Version, message);
        }
        let answer = match call.query {
            Query::Network => NetAnswer::Network(self.world.network.state.clone()),
            Query::Neighbours => NetAnswer::Neighbours(self.world.neighbours.entries()),
            Query::Watch => {
                if let Some(connection) = self.connections.get_mut(&token) {
                    connection.is_watching = true;
                }
                NetAnswer::Network(self.world.network.state.clone())
            }
            Query::Filter => return self.filter_file(NetAnswer::Filter),
            Query::SetFilter(changes) if self.may_change(token) => self.set_filter(&changes, now),
            Query::SetFilter(_) => denied(
                "Operation not permitted: only root and the owner of the device may change its filter",
                None,
            ),
            Query::Programs { from } => return self.programs(from),
            // Answered when the engines have been asked.
            Query::Inquire(_) => {
                return refuse(Refusal::BadRequest, "the question came by another way");
            }
            Query::Set(changes) if self.may_change(token) => self.set(&changes, now),
            Query::Set(_) => denied(
                "Operation not permitted: only root and the owner of the device may change its network",
                None,
            ),
        };
        Ok((Reply::Net(Box::new(answer)), Vec::new()))
    }

    /// Who may use the device need not be who may change it.
    pub(super) fn may_change(&self, token: u64) -> bool {
        let connection = self.connections.get(&token);
        let peer = connection.and_then(|connection| connection.socket.peer().ok());
        peer.is_some_and(|peer| [0, rustix::process::geteuid().as_raw()].contains(&peer.uid))
    }

    fn set(&mut self, changes: &[Change], now: u64) -> NetAnswer {
        let state = &self.world.network.state;
        let own = self.world.slots.link().vlan;
        let is_own =
            |change: &Change| matches!(change, Change::AddVlan { vlan, .. } if *vlan == own);
        if let Some(at) = changes.iter().position(is_own) {
            return denied(
                "File exists: it is the VLAN of the device's own interface",
                Some(at),
            );
        }
        let is_unknown = |change: &Change| matches!(change, Change::Tune { name, .. } if Tunable::find(name).is_none());
        if let Some(at) = changes.iter().position(is_unknown) {
            return denied(
                "No such file or directory: no stack has such a number",
                Some(at),
            );
        }
        let next = match state.changed(changes) {
            Ok(next) => next,
            Err(error) => return denied(&error.to_string(), Some(error.at)),
        };
        if next.is_forwarding
            && !state.is_forwarding
            && let Err(error) = check_forwarding(&state.own().name)
        {
            return denied(&error.to_string(), None);
        }
        let revision = next.revision;
        match self.publish(next, now) {
            Ok(()) => NetAnswer::Changed { revision },
            Err(error) => denied(&error.to_string(), None),
        }
    }

    fn filter_file(&self, answer: NetAnswer) -> Answer {
        let file = self.rules_file()?;
        Ok((Reply::Net(Box::new(answer)), vec![file]))
    }

    /// The rules of the packet filter, in a file of their own.
    pub(super) fn rules_file(&self) -> Result<OwnedFd, (Refusal, String)> {
        let mut text = Vec::new();
        for rule in &self.world.state.filter {
            add_line(&mut text, rule);
        }
        let failed = |error| (Refusal::Failed, format!("no file for the rules: {error}"));
        text_file(&text).map_err(failed)
    }

    fn set_filter(&mut self, changes: &[FilterChange], now: u64) -> NetAnswer {
        let mut state = self.world.network.state.clone();
        state.revision += 1;
        let mut numbers = Vec::new();
        // No other change had this revision.
        let id = state.revision << IDS_PER_CHANGE;
        let rules = &self.world.state.filter;
        let next = match change_filter(rules, changes, id, &mut numbers) {
            Ok(next) => next,
            Err(error) => return denied(&error.to_string(), Some(error.at())),
        };
        state.filter = if next.is_empty() { 0 } else { state.revision };
        let before = std::mem::replace(&mut self.world.state.filter, next);
        match self.publish(state, now) {
            Ok(()) => NetAnswer::FilterChanged(numbers),
            Err(error) => {
                self.world.state.filter = before;
                denied(&error.to_string(), None)
            }
        }
    }

    /// Tells everybody who watches what holds now.
    pub(super) fn tell_watchers(&mut self) {
        let watching = self.connections.iter().filter(|(_, it)| it.is_watching);
        let tokens: Vec<u64> = watching.map(|(token, _)| *token).collect();
        if tokens.is_empty() {
            return;
        }
        let state: NetworkState = self.world.network.state.clone();
        let reply = Reply::Net(Box::new(NetAnswer::Network(state)));
        for token in tokens {
            self.reply(token, &reply, &[]);
        }
    }
}

fn denied(why: &str, at: Option<usize>) -> NetAnswer {
    NetAnswer::Denied(Denied {
        why: why.to_owned(),
        at,
    })
}
