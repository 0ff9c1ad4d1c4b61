//! SO_REUSEPORT groups of datagram sockets, and the BPF programs that choose among their sockets.
//!
//! The order of members follows the times of their binds; when a member leaves, the last one takes
//! its place (reuseport_detach_sock()).

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use slipstack_channel::control::GroupSocket;

use super::clients::ClientId;

/// Most sockets in all groups.
pub const MEMBERS_MAX: usize = 4096;

/// One socket of a group. Several engines may serve it: a parent and its children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Member {
    rank: u64,
    cookie: u64,
    clients: Vec<ClientId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Group {
    local: SocketAddr,
    members: Vec<Member>,
    set_ms: u32,
    /// Instructions of BPF; none: there is no program.
    code: Vec<u8>,
}

/// A group's program with its sockets in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice<'a> {
    pub local: SocketAddr,
    pub code: &'a [u8],
    pub members: Vec<Chosen<'a>>,
}

/// A socket of a group, and the clients that serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen<'a> {
    pub rank: u64,
    pub cookie: u64,
    pub clients: &'a [ClientId],
}

/// All groups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Groups {
    all: Vec<Group>,
}

impl Groups {
    /// Adds a client's socket. Returns whether a BPF program has to be updated; `None` if there are
    /// too many sockets.
    pub fn join(&mut self, client: ClientId, socket: GroupSocket) -> Option<bool> {
        let GroupSocket {
            local,
            rank,
            cookie,
        } = socket;
        let count: usize = self
            .all
            .iter()
            .flat_map(|group| &group.members)
            .map(weight)
            .sum();
        if count >= MEMBERS_MAX {
            return None;
        }
        let group = match self.all.iter().position(|group| group.local == local) {
            Some(at) => &mut self.all[at],
            None => {
                self.all.push(Group {
                    local,
                    members: Vec::new(),
                    set_ms: 0,
                    code: Vec::new(),
                });
                self.all.last_mut()?
            }
        };
        let members = &mut group.members;
        match members.iter_mut().find(|member| member.rank == rank) {
            Some(member) => {
                if !member.clients.contains(&client) {
                    member.clients.push(client);
                }
            }
            None => {
                let later = members.iter().position(|member| member.rank > rank);
                let clients = vec![client];
                members.insert(
                    later.unwrap_or(members.len()),
                    Member {
                        rank,
                        cookie,
                        clients,
                    },
                );
            }
        }
        Some(!group.code.is_empty())
    }

    /// Removes a client's socket. Returns whether a BPF program has to be updated.
    pub fn part(&mut self, client: ClientId, local: SocketAddr, rank: u64) -> bool {
        let mut has_program = false;
        for group in self.all.iter_mut().filter(|group| group.local == local) {
            has_program |= group.remove(client, Some(rank));
        }
        self.drop_empty();
        has_program
    }

    /// Removes all sockets of a client and returns the ports whose BPF programs have to be updated.
    pub fn part_all(&mut self, client: ClientId) -> Vec<u16> {
        let left = self.all.iter_mut().filter_map(|group| {
            let is_accepted = group.remove(client, None);
            is_accepted.then_some(group.local.port())
        });
        let ports = left.collect();
        self.drop_empty();
        ports
    }

    /// Sets the program of a group in which the client has a socket. Returns whether anything has
    /// changed; `None` if it has none there.
    pub fn choose(
        &mut self,
        client: ClientId,
        local: SocketAddr,
        (set_ms, code): (u32, Vec<u8>),
    ) -> Option<bool> {
        let mut groups = self.all.iter_mut();
        let group = groups.find(|group| {
            let mut members = group.members.iter();
            group.local == local && members.any(|member| member.clients.contains(&client))
        })?;
        if set_ms < group.set_ms || group.code == code {
            return Some(false);
        }
        group.set_ms = set_ms;
        group.code = code;
        Some(true)
    }

    /// The groups of a port that have a program.
    pub fn on(&self, port: u16) -> impl Iterator<Item = Choice<'_>> {
        let groups = self.all.iter();
        let chosen = groups.filter(move |it| it.local.port() == port && !it.code.is_empty());
        chosen.map(|group| Choice {
            local: group.local,
            code: &group.code,
            members: group
                .members
                .iter()
                .map(|member| Chosen {
                    rank: member.rank,
                    cookie: member.cookie,
                    clients: &member.clients,
                })
                .collect(),
        })
    }

    /// Returns the clients with a socket in a group of a port.
    pub fn clients(&self, port: u16) -> Vec<ClientId> {
        let groups = self.all.iter().filter(|group| group.local.port() == port);
        let members = groups.flat_map(|group| &group.members);
        let mut clients: Vec<_> = members.flat_map(|it| it.clients.iter().copied()).collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }

    fn drop_empty(&mut self) {
        self.all.retain(|group| !group.members.is_empty());
    }
}

impl Group {
    /// Returns whether the group has a BPF program that has to be updated.
    fn remove(&mut self, client: ClientId, rank: Option<u64>) -> bool {
        let mut at = 0;
        let before = self.members.len();
        let mut was_in = false;
        while let Some(member) = self.members.get_mut(at) {
            if rank.is_none_or(|rank| member.rank == rank) {
                was_in |= member.clients.contains(&client);
                member.clients.retain(|it| *it != client);
            }
            match member.clients.is_empty() {
                true => drop(self.members.swap_remove(at)),
                false => at += 1,
            }
        }
        (was_in || self.members.len() < before) && !self.code.is_empty()
    }
}

fn weight(member: &Member) -> usize {
    member.clients.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "0.0.0.0:443";

    fn local() -> SocketAddr {
        LOCAL.parse().unwrap()
    }

    fn socket(rank: u64) -> GroupSocket {
        GroupSocket {
            local: local(),
            rank,
            cookie: !rank,
        }
    }

    fn ranks(groups: &Groups) -> Vec<u64> {
        let found = groups.on(443).next();
        found.map_or(Vec::new(), |it| {
            it.members.iter().map(|it| it.rank).collect()
        })
    }

    #[test]
    fn sockets_stand_in_the_order_of_their_binds_and_the_last_one_fills_a_gap() {
        let mut groups = Groups::default();
        for rank in [3, 1, 2] {
            assert_eq!(groups.join(ClientId(rank), socket(rank)), Some(false));
        }
        let set = groups.choose(ClientId(1), local(), (5, vec![1; 8]));
        assert_eq!(set, Some(true));
        assert_eq!(ranks(&groups), [1, 2, 3]);
        assert!(groups.part(ClientId(1), local(), 1));
        assert_eq!(ranks(&groups), [3, 2]);
        assert_eq!(groups.join(ClientId(4), socket(4)), Some(true));
        assert_eq!(ranks(&groups), [3, 2, 4]);
        assert_eq!(groups.part_all(ClientId(3)), [443]);
        assert_eq!(ranks(&groups), [4, 2]);
    }

    #[test]
    fn the_last_group_program_applies_and_only_members_set_one() {
        let mut groups = Groups::default();
        groups.join(ClientId(1), socket(1));
        let mut set = |client, at, byte| groups.choose(ClientId(client), local(), (at, vec![byte]));
        assert_eq!(set(2, 9, 7), None);
        assert_eq!(set(1, 5, 1), Some(true));
        assert_eq!(set(1, 4, 2), Some(false));
        assert_eq!(set(1, 6, 1), Some(false), "the same again");
        assert_eq!(groups.on(443).next().unwrap().code, [1]);
        groups.part_all(ClientId(1));
        assert_eq!(groups.on(443).count(), 0);
    }

    #[test]
    fn a_socket_of_several_processes_stays_until_the_last_of_them_leaves() {
        let mut groups = Groups::default();
        for client in 1..=2 {
            groups.join(ClientId(client), socket(7));
        }
        groups.choose(ClientId(1), local(), (1, vec![1]));
        assert_eq!(groups.clients(443), [ClientId(1), ClientId(2)]);
        assert!(groups.part(ClientId(1), local(), 7));
        assert_eq!(ranks(&groups), [7]);
        assert!(groups.part(ClientId(2), local(), 7));
        assert_eq!(ranks(&groups), [0; 0]);
    }

    #[test]
    fn the_table_of_group_members_is_bounded() {
        let mut groups = Groups::default();
        for rank in 0..MEMBERS_MAX as u64 {
            assert!(groups.join(ClientId(1), socket(rank)).is_some());
        }
        assert_eq!(groups.join(ClientId(1), socket(u64::MAX)), None);
    }
}
