//! Changes that add addresses: before they take effect the link is asked whether another station
//! has one (RFC 5227 2.1.1, RFC 4862 5.4).

use slipstack_channel::control::net::{
    Answer as NetAnswer, Call, Change, Denied, NetworkState, Query, VERSION,
};
use slipstack_channel::control::{Refusal, Reply, Request};

use super::Server;
use crate::conflict::{PROBES, WAIT, Wanted};

/// Changes that wait for an answer of the link.
const TRIALS_MAX: usize = 256;

/// A change that waits.
pub(super) struct Trial {
    /// The connection that gets the answer.
    token: u64,
    changes: Vec<Change>,
    wanted: Vec<Wanted>,
    probes_sent: usize,
    due: u64,
}

impl Server {
    /// Returns the immediate answer; a change that adds addresses is answered later.
    pub(super) fn take_trial(&mut self, token: u64, request: Request, now: u64) -> Option<Request> {
        let Request::Net(Call {
            version: VERSION,
            query: Query::Set(changes),
        }) = &request
        else {
            return Some(request);
        };
        let has_neighbours = self.resources.slots.backend().capabilities().has_neighbours;
        let may_change = has_neighbours && self.may_change(token);
        let wanted = match may_change {
            true => wanted(&self.resources.network.state, changes),
            false => Vec::new(),
        };
        if wanted.is_empty() {
            return Some(request);
        }
        if self.trials.len() >= TRIALS_MAX {
            self.tally.refused += 1;
            let message = "too many addresses are being added; try again".to_owned();
            let refusal = Refusal::Exhausted;
            self.reply(token, &Reply::Refused { refusal, message }, &[]);
            return None;
        }
        self.net.begin_search(&wanted);
        self.trials.push(Trial {
            token,
            changes: changes.clone(),
            wanted,
            probes_sent: 0,
            due: now,
        });
        self.follow_trials(now);
        None
    }

    /// Returns when the first trial is due.
    pub(super) fn trials_due(&self) -> Option<u64> {
        self.trials.iter().map(|trial| trial.due).min()
    }

    /// Refuses changes whose addresses other stations have, repeats probes, and applies changes
    /// without conflict.
    pub(super) fn follow_trials(&mut self, now: u64) {
        for mut trial in std::mem::take(&mut self.trials) {
            let net = &self.net;
            let owner = |it: &Wanted| net.owner_of(it).map(|station| (*it, station));
            let answer = match trial.wanted.iter().find_map(owner) {
                Some((taken, station)) => taken_by(&trial, taken, station),
                None if now < trial.due => {
                    self.trials.push(trial);
                    continue;
                }
                None if trial.probes_sent < PROBES => {
                    self.net.send_probes(&trial.wanted);
                    trial.probes_sent += 1;
                    trial.due = now + WAIT.as_nanos() as u64;
                    self.trials.push(trial);
                    continue;
                }
                // The client that asked has gone, and would not learn that the address is in use.
                None if !self.connections.contains_key(&trial.token) => {
                    self.net.end_search(&trial.wanted);
                    continue;
                }
                None => self.set(&trial.changes, now),
            };
            self.net.end_search(&trial.wanted);
            self.reply(trial.token, &Reply::Net(Box::new(answer)), &[]);
        }
    }
}

/// Returns the addresses that changes add to interfaces that exist and are up. Impossible changes
/// are refused without probing.
fn wanted(state: &NetworkState, changes: &[Change]) -> Vec<Wanted> {
    if state.changed(changes).is_err() {
        return Vec::new();
    }
    let new = changes.iter().filter_map(|change| match change {
        Change::AddAddress {
            interface,
            address: (ip, _),
            is_certain: false,
            ..
        } => {
            let it = state.find(interface).filter(|it| !state.is_down(it))?;
            let is_ours = state.addresses().iter().any(|(own, _)| own == ip);
            (!is_ours).then_some(Wanted {
                link: it.link,
                own: it.mac,
                ip: *ip,
            })
        }
        _ => None,
    });
    new.collect()
}

fn taken_by(trial: &Trial, taken: Wanted, station: [u8; 6]) -> NetAnswer {
    let brings = |change: &Change| match change {
        Change::AddAddress { address, .. } => address.0 == taken.ip,
        _ => false,
    };
    let station = station.map(|byte| format!("{byte:02x}")).join(":");
    NetAnswer::Denied(Denied {
        why: format!(
            "Address already in use: {station} has {}; use nodad to add it all the same",
            taken.ip
        ),
        at: trial.changes.iter().position(brings),
    })
}
