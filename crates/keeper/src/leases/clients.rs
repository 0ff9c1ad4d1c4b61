//! The processes attached to the keeper.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Most clients of one keeper at a time (programs, instances, reservations).
pub const CLIENTS_MAX: usize = 1024;
/// Longest program name that is kept.
pub const PROGRAM_NAME_MAX: usize = 64;

/// A client of this keeper; never reused while the keeper (or its successors) live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(pub u64);

/// A program image and the children it forked: they may listen on the same port together, because
/// on the kernel they would share one listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Family(pub u64);

/// A process, safe against reuse of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessKey {
    pub pid: u32,
    /// Start time in clock ticks since boot, from `/proc/PID/stat`.
    pub started: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    pub process: ProcessKey,
    pub uid: u32,
    pub program: String,
    pub family: Family,
    /// See [`slipstack_channel::control::Hello::heirs`].
    pub heirs: u64,
    /// Name of the instance, if it is one.
    pub instance: Option<String>,
    /// The slot it leases.
    pub slot: Option<u16>,
    /// The kernel's id of the thread that took the slot for its engine; 0 = none.
    pub thread: u32,
}

/// The table of clients.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Clients {
    next: u64,
    table: BTreeMap<ClientId, Client>,
}

impl Clients {
    /// Enters a client. `None`: the table is full.
    pub fn insert(&mut self, mut client: Client) -> Option<ClientId> {
        if self.table.len() >= CLIENTS_MAX {
            return None;
        }
        client.program = plain_name(&client.program);
        self.next += 1;
        let id = ClientId(self.next);
        self.table.insert(id, client);
        Some(id)
    }

    pub fn find(&self, id: ClientId) -> Option<&Client> {
        self.table.get(&id)
    }

    pub fn find_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        self.table.get_mut(&id)
    }

    pub fn find_by_slot(&self, slot: u16) -> Option<(ClientId, &Client)> {
        self.iter().find(|(_, client)| client.slot == Some(slot))
    }

    pub fn remove(&mut self, id: ClientId) -> Option<Client> {
        self.table.remove(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (ClientId, &Client)> + '_ {
        self.table.iter().map(|(id, client)| (*id, client))
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

/// Names come from the clients themselves and are shown on terminals.
fn plain_name(name: &str) -> String {
    name.chars()
        .filter(|c| !c.is_control())
        .take(PROGRAM_NAME_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(pid: u32) -> Client {
        Client {
            process: ProcessKey { pid, started: 1 },
            uid: 0,
            program: "a\u{1b}[31mb".to_owned(),
            family: Family(1),
            heirs: 0,
            instance: None,
            slot: None,
            thread: 0,
        }
    }

    #[test]
    fn names_lose_their_control_characters() {
        let mut clients = Clients::default();
        let id = clients.insert(client(1)).expect("room");
        assert_eq!(clients.find(id).expect("there").program, "a[31mb");
    }

    #[test]
    fn ids_are_not_used_twice_and_the_table_is_bounded() {
        let mut clients = Clients::default();
        let first = clients.insert(client(1)).expect("room");
        clients.remove(first);
        let second = clients.insert(client(1)).expect("room");
        assert_ne!(first, second);
        for pid in 2..=CLIENTS_MAX as u32 {
            assert!(clients.insert(client(pid)).is_some());
        }
        assert!(clients.insert(client(9999)).is_none());
    }
}
