//! The control protocol: an operator's queries and changes of the network.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use slipstack_channel::control::net::{
    Answer as NetAnswer, Call, Change, Denied, FilterChange, FilterHead, NetworkState, Query,
    VERSION, change_filter,
};
use slipstack_channel::control::{Refusal, Reply, Viewer, add_line, text_file};

use slipstack_device::LinkId;
use slipstack_stack::Tunable;
use tracing::info;

use super::Server;
use super::clients::{Answer, not_permitted, refuse};
use crate::interfaces::untaggable;
use crate::log::FILTER_TARGET;
use crate::routes::check_forwarding;

/// New rules of one change, as bits of their ids.
const IDS_PER_CHANGE: u32 = 20;
/// Lines of a log in one message of an engine, and characters of each.
const LOG_LINES_MAX: usize = 256;
const LOG_LINE_MAX: usize = 256;

impl Server {
    pub(super) fn on_call(&mut self, token: u64, viewer: Viewer, call: Call, now: u64) -> Answer {
        if call.version != VERSION {
            let message = format!(
                "this keeper speaks version {VERSION} of the control protocol, the command version \
                 {}",
                call.version
            );
            return refuse(Refusal::Version, message);
        }
        let answer = match call.query {
            Query::Network => NetAnswer::Network(self.resources.network.state.clone()),
            Query::Neighbours => NetAnswer::Neighbours(self.neighbours()),
            Query::Watch => {
                if let Some(connection) = self.connections.get_mut(&token) {
                    connection.is_watching = true;
                }
                NetAnswer::Network(self.resources.network.state.clone())
            }
            Query::Filter { .. } if !viewer.is_operator() => {
                denied(&not_permitted("read its filter"), None)
            }
            Query::Filter { known } => {
                let (head, files) = self.filter_files(known.as_deref())?;
                return Ok((Reply::Net(Box::new(NetAnswer::Filter(head))), files));
            }
            Query::SetFilter(changes) if viewer.is_operator() => self.set_filter(&changes, now),
            Query::SetFilter(_) => denied(&not_permitted("change its filter"), None),
            Query::Programs { from } => return self.programs(from, viewer),
            // Answered when the engines have answered.
            Query::Inquire(_) => {
                return refuse(
                    Refusal::BadRequest,
                    "the query came over another connection",
                );
            }
            Query::Set(changes) if viewer.is_operator() => self.set(&changes, now),
            Query::Set(_) => denied(&not_permitted("change its network"), None),
        };
        Ok((Reply::Net(Box::new(answer)), Vec::new()))
    }

    /// The neighbours that are known, each with the link that leads to it.
    fn neighbours(&self) -> Vec<(u16, IpAddr, [u8; 6])> {
        let state = &self.resources.network.state;
        let link = |ip| state.interface_towards(ip).map_or(0, |it| it.link);
        let known = self.resources.neighbours.entries().into_iter();
        known.map(|(ip, mac)| (link(ip), ip, mac)).collect()
    }

    /// Returns whether the client may change the device; that it may use it does not suffice.
    pub(super) fn may_change(&self, token: u64) -> bool {
        let connection = self.connections.get(&token);
        connection.is_some_and(|connection| connection.viewer.is_operator())
    }

    pub(super) fn set(&mut self, changes: &[Change], now: u64) -> NetAnswer {
        let state = &self.resources.network.state;
        let is_own = |change: &Change| match change {
            Change::AddVlan {
                link,
                id,
                is_provider: false,
                within: None,
                ..
            } => {
                let port = usize::from(LinkId(*link).port());
                let port = self.resources.slots.ports().nth(port);
                port.is_some_and(|(_, port)| port.vlan == *id)
            }
            _ => false,
        };
        if let Some(at) = changes.iter().position(is_own) {
            return denied(
                "File exists: it is the VLAN of the interface itself",
                Some(at),
            );
        }
        let capabilities = self.resources.slots.backend().capabilities();
        let refused = |(at, it)| Some((at, untaggable(it, capabilities)?));
        if let Some((at, why)) = changes.iter().enumerate().find_map(refused) {
            return denied(why, Some(at));
        }
        let is_unknown = |change: &Change| match change {
            Change::Tune { name, .. } => Tunable::find(name).is_none(),
            _ => false,
        };
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
            && let Err(error) = check_forwarding(&next)
        {
            return denied(&error.to_string(), None);
        }
        let revision = next.revision;
        // Before the engines hear of it: they would find it again.
        for change in changes {
            if let Change::DelNeighbour { ip, .. } = change {
                self.resources.neighbours.forget(*ip);
            }
        }
        match self.publish(next, now) {
            Ok(()) => NetAnswer::Changed { revision },
            Err(error) => denied(&error.to_string(), None),
        }
    }

    /// The packet filter: its rules and the prefixes of its tables in files of their own.
    pub(super) fn filter_files(
        &self,
        known: Option<&[u64]>,
    ) -> Result<(FilterHead, Vec<OwnedFd>), (Refusal, String)> {
        let filter = &self.resources.state.filter;
        let mut text = Vec::new();
        for rule in &filter.rules {
            add_line(&mut text, rule);
        }
        let (head, prefixes) = filter.tell(known);
        let failed = |error| (Refusal::Failed, format!("no file for the rules: {error}"));
        let files = [text_file(&text), text_file(&prefixes)];
        let files: Result<Vec<OwnedFd>, _> = files.into_iter().collect();
        Ok((head, files.map_err(failed)?))
    }

    fn set_filter(&mut self, changes: &[FilterChange], now: u64) -> NetAnswer {
        let mut state = self.resources.network.state.clone();
        state.revision += 1;
        let mut numbers = Vec::new();
        // No other change had this revision.
        let id = state.revision << IDS_PER_CHANGE;
        let next = match change_filter(&self.resources.state.filter, changes, id, &mut numbers) {
            Ok(next) => next,
            Err(error) => return denied(&error.to_string(), Some(error.at)),
        };
        state.filter = match next.rules.is_empty() {
            true => 0,
            false => state.revision,
        };
        let has_tables = next.tables != self.resources.state.filter.tables;
        let before = std::mem::replace(&mut self.resources.state.filter, next);
        if has_tables {
            self.resources.save_tables();
        }
        match self.publish(state, now) {
            Ok(()) => NetAnswer::FilterChanged(numbers),
            Err(error) => {
                self.resources.state.filter = before;
                if has_tables {
                    self.resources.save_tables();
                }
                denied(&error.to_string(), None)
            }
        }
    }

    pub(super) fn on_filter(&self, known: &[u64]) -> Answer {
        let (head, files) = self.filter_files(Some(known))?;
        Ok((Reply::Filter(head), files))
    }

    pub(super) fn on_filter_log(&mut self, lines: &[String]) -> Answer {
        self.log_filter(lines);
        Ok((Reply::Done, Vec::new()))
    }

    /// Logs matches of the filter's rules that an engine has reported.
    pub(super) fn log_filter(&mut self, lines: &[String]) {
        for line in lines.iter().take(LOG_LINES_MAX) {
            let shown = line.chars().filter(|c| !c.is_control());
            let shown: String = shown.take(LOG_LINE_MAX).collect();
            info!(target: FILTER_TARGET, "{shown}");
        }
    }

    /// Sends the current network to all watchers.
    pub(super) fn tell_watchers(&mut self) {
        self.tell_all(|server| {
            let state: NetworkState = server.resources.network.state.clone();
            NetAnswer::Network(state)
        });
    }

    fn tell_all(&mut self, answer: impl FnOnce(&Server) -> NetAnswer) {
        let watching = self.connections.iter().filter(|(_, it)| it.is_watching);
        let tokens: Vec<u64> = watching.map(|(token, _)| *token).collect();
        if tokens.is_empty() {
            return;
        }
        let reply = Reply::Net(Box::new(answer(self)));
        for token in tokens {
            self.reply(token, &reply, &[]);
        }
    }

    /// Tells watchers of the neighbours, and programs of all that has changed.
    pub(super) fn follow_notices(&mut self, now: u64) {
        let neighbours = &self.resources.neighbours;
        if self.announcer.have_neighbours_changed(neighbours) {
            self.announcer.note(now);
            self.tell_all(|server| NetAnswer::Neighbours(server.neighbours()));
        }
        let resources = &self.resources;
        self.announcer
            .follow(&resources.network.state, &resources.neighbours, now);
    }
}

fn denied(why: &str, at: Option<usize>) -> NetAnswer {
    NetAnswer::Denied(Denied {
        why: why.to_owned(),
        at,
    })
}
