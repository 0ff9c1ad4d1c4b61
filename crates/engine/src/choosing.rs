//! BPF programs that choose among the sockets of a SO_REUSEPORT group: passed from a socket's
//! program to the keeper, which knows the sockets of all engines, and from there to each engine's
//! stack.

use std::net::SocketAddr;

use slipstack_channel::control::{ChooserMember, ChooserState, GroupSocket};
use slipstack_channel::{ChooserPart, Reply, SocketError};
use slipstack_device::ProgramMap;
use slipstack_stack::{Chooser, ChooserCode, Instant, Member};

use crate::client::Role;
use crate::commands::Answer;
use crate::engine::Engine;
use crate::owners::Owner;

impl Engine {
    /// A part of a program; with the last one it holds.
    pub(crate) fn on_chooser_part(&mut self, owner: Owner, part: ChooserPart) -> Answer {
        let socket = self.env.socket(owner).ok_or(SocketError::UnknownId)?;
        let (Role::Datagram(_), Some(bound)) = (socket.role, socket.bound()) else {
            return Err(SocketError::NotSupported);
        };
        if part.at == 0 {
            socket.chooser.take();
        }
        socket.chooser.make().extend(part.bytes());
        if part.is_last() {
            let code = socket.chooser.take();
            if let Some(ports) = &self.ports {
                ports.choose(bound.addr, part.set_ms, &code);
            }
            self.on_choosers_changed(bound.addr.port());
        }
        Ok(Reply::Done)
    }

    /// A datagram socket is about to be given up.
    pub(crate) fn leave_group(&mut self, owner: Owner) {
        let bound = self.env.socket(owner).and_then(|socket| socket.bound());
        if let Some(bound) = bound {
            self.join_group(owner, bound.addr, false);
        }
    }

    /// A datagram socket is bound, or about to be given up.
    pub(crate) fn join_group(&mut self, owner: Owner, local: SocketAddr, is_on: bool) {
        let socket = self.env.socket(owner);
        let options = socket.and_then(|socket| socket.options.as_deref());
        let (rank, cookie) = options.map_or((0, 0), |options| (options.rank, options.cookie));
        let Some(ports) = self.ports.as_ref().filter(|_| rank != 0) else {
            return;
        };
        let socket = GroupSocket {
            local,
            rank,
            cookie,
        };
        let has_program = ports.join_group(socket, is_on);
        // That of the sockets before goes with them.
        if has_program || self.stack.udp_has_choosers(local.port()) {
            self.on_choosers_changed(local.port());
        }
    }

    /// The keeper has other programs or members for the groups of a port.
    #[cold]
    pub(crate) fn on_choosers_changed(&mut self, port: u16) {
        let found = self.ports.as_ref().and_then(|ports| ports.choosers(port));
        if let Some((states, maps)) = found {
            let maps = maps.into_iter().filter_map(|fd| ProgramMap::of(fd).ok());
            self.env.maps.retain(|(of, _)| *of != port);
            self.env.maps.extend(maps.map(|map| (port, map)));
            let choosers = states.into_iter().filter_map(chooser_of).collect();
            self.stack.udp_set_choosers(port, choosers);
        }
    }

    /// A datagram that another engine has received and a program has chosen a socket for.
    #[cold]
    pub(crate) fn on_chosen(&mut self, now: Instant, rank: u64, (link, frame): (u16, &[u8])) {
        self.stack.udp_expect(Some(rank));
        self.on_local(now, link, frame);
        self.stack.udp_expect(None);
    }
}

/// Returns a group's chooser; `None` if this version does not know its program.
fn chooser_of(state: ChooserState) -> Option<(SocketAddr, Chooser)> {
    let member = |it: ChooserMember| Member {
        rank: it.rank,
        cookie: it.cookie,
        slot: it.slot,
    };
    let chooser = Chooser {
        code: ChooserCode::of(&state.code)?,
        members: state.members.into_iter().map(member).collect(),
    };
    Some((state.local, chooser))
}
