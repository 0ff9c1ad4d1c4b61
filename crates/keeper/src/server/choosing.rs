//! Requests about SO_REUSEPORT groups whose sockets are chosen by a BPF program.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use slipstack_channel::control::{
    ChooserMember, ChooserState, DESCRIPTORS_MAX, GroupSocket, Refusal, Reply, Request,
};
use slipstack_channel::{CHOOSER_MAX, Extended};
use slipstack_device::ProgramMap;
use tracing::warn;

use crate::leases::ClientId;
use crate::maps;

use super::Server;
use super::clients::{Answer, refuse};

/// Bytes of an instruction.
const INSTRUCTION: usize = 8;

impl Server {
    pub(super) fn on_group_request(&mut self, client: ClientId, request: Request) -> Answer {
        match request {
            Request::JoinGroup { socket, is_on } => self.on_join_group(client, socket, is_on),
            Request::Choose {
                local,
                set_ms,
                code,
            } => self.on_choose(client, local, (set_ms, code)),
            Request::Choosers { port } => self.on_choosers(client, port),
            _ => refuse(Refusal::BadRequest, "a keeper does not take this request"),
        }
    }

    /// The reply has the group's program, if there is one.
    fn on_join_group(&mut self, client: ClientId, socket: GroupSocket, is_on: bool) -> Answer {
        let GroupSocket { local, rank, .. } = socket;
        let leases = &mut self.resources.state.leases;
        let is_accepted = match is_on {
            true => leases.groups.join(client, socket),
            false => Some(leases.groups.part(client, local, rank)),
        };
        let is_in_group = leases.groups.clients(local.port()).contains(&client);
        leases
            .listeners
            .set_own_queue(client, local.port(), is_in_group);
        let Some(is_accepted) = is_accepted else {
            return refuse(Refusal::Exhausted, "too many sockets share ports");
        };
        if is_accepted {
            self.notify_choosers(local.port(), Some(client));
        }
        self.done()?;
        Ok((
            Reply::Choosers(self.choosers(client, local.port())),
            Vec::new(),
        ))
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
        if !self.may_read_maps(client, &code) {
            return refuse(
                Refusal::NotPermitted,
                "the program's maps are not the client's",
            );
        }
        let groups = &mut self.resources.state.leases.groups;
        match groups.choose(client, local, (set_ms, code)) {
            None => return refuse(Refusal::NotPermitted, "no socket of this group"),
            Some(false) => {}
            Some(true) => self.notify_choosers(local.port(), Some(client)),
        }
        self.done()
    }

    /// Returns whether the client has the maps that a program refers to: they are opened for it.
    fn may_read_maps(&self, client: ClientId, code: &[u8]) -> bool {
        let leases = &self.resources.state.leases;
        let Some(process) = leases.clients.find(client) else {
            return false;
        };
        let needed = maps_of(code);
        let missing = needed.into_iter().find(|map| !maps::is_held(process, *map));
        if let Some(map) = missing {
            let client = client.0;
            warn!(
                client,
                map, "a program refers to a map that its process does not have"
            );
        }
        missing.is_none()
    }

    fn on_choosers(&self, client: ClientId, port: u16) -> Answer {
        let states = self.choosers(client, port);
        let mut needed: Vec<u32> = states.iter().flat_map(|it| maps_of(&it.code)).collect();
        needed.sort_unstable();
        needed.dedup();
        // A long reply has one beside them.
        needed.truncate(DESCRIPTORS_MAX - 1);
        Ok((Reply::Choosers(states), open(&needed)))
    }

    /// The groups of a port that have a program and a socket of the client.
    fn choosers(&self, client: ClientId, port: u16) -> Vec<ChooserState> {
        let leases = &self.resources.state.leases;
        let slots = |clients: &[ClientId]| {
            let mut found = clients
                .iter()
                .filter_map(|id| leases.clients.find(*id)?.slot);
            found.next().unwrap_or(0)
        };
        let groups = leases.groups.on(port);
        let theirs = groups.filter(|it| it.members.iter().any(|it| it.clients.contains(&client)));
        let states = theirs.map(|choice| ChooserState {
            local: choice.local,
            code: choice.code.to_vec(),
            members: choice
                .members
                .iter()
                .map(|it| ChooserMember {
                    rank: it.rank,
                    cookie: it.cookie,
                    slot: slots(it.clients),
                })
                .collect(),
        });
        states.collect()
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

/// The ids of the maps that a program refers to.
fn maps_of(code: &[u8]) -> Vec<u32> {
    Extended::parse(code).map_or(Vec::new(), |program| program.maps())
}

/// Opens maps to be read. A program whose map cannot be opened finds nothing in it.
fn open(ids: &[u32]) -> Vec<OwnedFd> {
    let opened = ids.iter().filter_map(|id| match ProgramMap::open(*id) {
        Ok(map) => map.as_fd().try_clone_to_owned().ok(),
        Err(error) => {
            warn!(id, %error, "a map of a program's cannot be opened");
            None
        }
    });
    opened.collect()
}
