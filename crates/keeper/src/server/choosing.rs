//! Requests about SO_REUSEPORT groups whose sockets are chosen by a BPF program.

use std::net::SocketAddr;

use slipstack_channel::CHOOSER_MAX;
use slipstack_channel::control::{ChooserMember, ChooserState, Refusal, Reply, Request};

use crate::leases::ClientId;

use super::Server;
use super::clients::{Answer, refuse};

/// Bytes of an instruction of classic BPF.
const INSTRUCTION: usize = 8;

impl Server {
    pub(super) fn on_group_request(&mut self, client: ClientId, request: Request) -> Answer {
        match request {
            Request::JoinGroup { local, rank, is_on } => {
                self.on_join_group(client, local, rank, is_on)
            }
            Request::Choose {
                local,
                set_ms,
                code,
            } => self.on_choose(client, local, (set_ms, code)),
            Request::Choosers { port } => self.on_choosers(port),
            _ => refuse(Refusal::BadRequest, "a keeper does not take this request"),
        }
    }

    /// The reply has the group's program, if there is one.
    fn on_join_group(
        &mut self,
        client: ClientId,
        local: SocketAddr,
        rank: u64,
        is_on: bool,
    ) -> Answer {
        let groups = &mut self.resources.state.leases.groups;
        let is_accepted = match is_on {
            true => groups.join(client, local, rank),
            false => Some(groups.part(client, local, rank)),
        };
        let Some(is_accepted) = is_accepted else {
            return refuse(Refusal::Exhausted, "too many sockets share ports");
        };
        if is_accepted {
            self.notify_choosers(local.port(), Some(client));
        }
        self.done()?;
        self.on_choosers(local.port())
    }

    fn on_choose(
        &mut self,
        client: ClientId,
        local: SocketAddr,
        (set_ms, code): (u32, Vec<u8>),
    ) -> Answer {
        if code.len() > CHOOSER_MAX * INSTRUCTION || !code.len().is_multiple_of(INSTRUCTION) {
            return refuse(Refusal::BadRequest, "this is not a valid BPF program");
        }
        let groups = &mut self.resources.state.leases.groups;
        match groups.choose(client, local, (set_ms, code)) {
            None => return refuse(Refusal::NotPermitted, "no socket of this group"),
            Some(false) => {}
            Some(true) => self.notify_choosers(local.port(), Some(client)),
        }
        self.done()
    }

    fn on_choosers(&self, port: u16) -> Answer {
        let leases = &self.resources.state.leases;
        let slots = |clients: &[ClientId]| {
            let mut found = clients
                .iter()
                .filter_map(|id| leases.clients.find(*id)?.slot);
            found.next().unwrap_or(0)
        };
        let states = leases.groups.on(port).map(|choice| ChooserState {
            local: choice.local,
            code: choice.code.to_vec(),
            members: choice
                .members
                .iter()
                .map(|(rank, clients)| ChooserMember {
                    rank: *rank,
                    slot: slots(clients),
                })
                .collect(),
        });
        Ok((Reply::Choosers(states.collect()), Vec::new()))
    }

    /// Notifies engines with sockets on the port to fetch its BPF programs; `except`, whose request
    /// caused the change, fetches them anyway.
    pub(super) fn notify_choosers(&mut self, port: u16, except: Option<ClientId>) {
        let leases = &self.resources.state.leases;
        let clients = leases.groups.clients(port);
        let others = clients.into_iter().filter(|id| Some(*id) != except);
        let slots = others.filter_map(|id| leases.clients.find(id)?.slot);
        self.net.notify_choosers(port, slots.collect());
    }
}
