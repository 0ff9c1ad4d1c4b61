//! Ends of connections that a client has left in its regions because it was killed, or had more of
//! them than it could hand over.

use std::collections::{HashMap, HashSet};

use slipstack_channel::control::TimeWaitEntry;
use slipstack_channel::{FlowEntry, LeftConnection};
use slipstack_device::{Flow, Transport};
use slipstack_mem::Region;
use slipstack_stack::{HalfOpenImage, HalfOpenRecord, Instant};

use crate::directory;
use crate::leases::ClientId;
use crate::regions::RegionKey;

use super::Server;
use super::lent::Lent;

/// Results for connections whose program was killed.
#[derive(Default)]
pub(super) struct Ended {
    /// The rest of the written data is delivered from here.
    pub(super) adopted: Vec<Flow>,
    /// Flows whose peers get a reset.
    pub(super) doomed: Vec<Flow>,
    pub(super) unaccepted: Vec<Unaccepted>,
    pub(super) half_open: Vec<HalfOpen>,
    /// Other processes may use them.
    pub(super) lent: Vec<Lent>,
}

/// A connection that no program has accepted.
pub(super) struct Unaccepted {
    entry: FlowEntry,
    left: LeftConnection,
    region: Region,
}

/// A half-open connection, and the link that its listener was bound to.
pub(super) type HalfOpen = (HalfOpenImage, u16);

impl Ended {
    /// Connections whose peers are answered from here.
    pub(super) fn staying(&self) -> impl Iterator<Item = Flow> + '_ {
        let lent = self.lent.iter().map(Lent::flow);
        self.adopted.iter().chain(&self.doomed).copied().chain(lent)
    }
}

impl Server {
    /// Returns the TIME-WAIT entries in a client's regions, those with most time left first, except
    /// those whose two ends an open connection of any engine has.
    pub(super) fn left_time_waits(&self, client: ClientId, now: u64) -> Vec<TimeWaitEntry> {
        let regions = self.resources.regions.iter();
        let own: Vec<&Region> = regions
            .filter(|(key, _)| key.0 == client)
            .map(|(_, region)| region)
            .collect();
        let entries = |region: &&Region| slipstack_channel::time_wait_records(region, now);
        let mut found: Vec<TimeWaitEntry> = own.iter().flat_map(entries).collect();
        if found.is_empty() {
            return found;
        }
        let flows = own.into_iter().flat_map(slipstack_channel::flows);
        let mut open: HashSet<Flow> = flows.map(|entry| directory::flow_of(&entry)).collect();
        open.extend(self.living());
        found.retain(|entry| {
            !open.contains(&Flow {
                proto: Transport::Tcp,
                local: entry.local,
                remote: entry.remote,
            })
        });
        found
    }

    /// Ends the TCP flows of a client, and forgets its regions.
    pub(super) fn end_flows(&mut self, client: ClientId, now: u64) -> Ended {
        let of_client = |key: &&RegionKey| key.0 == client;
        let keys: Vec<RegionKey> = self
            .resources
            .regions
            .keys()
            .filter(of_client)
            .copied()
            .collect();
        let owner = self.resources.state.leases.clients.find(client);
        // Programs of an instance are not told apart here.
        let owner = owner.filter(|client| client.instance.is_none());
        let heirs = owner.map(|client| client.heirs).filter(|heirs| *heirs != 0);
        let regions = &mut self.resources.regions;
        let take = |key| Some((key, regions.remove(&key)?));
        let regions: Vec<(RegionKey, Region)> = keys.into_iter().filter_map(take).collect();
        let mut ended = Ended::default();
        // Collected once, when the first connection that was leaving is seen.
        let mut living = None;
        for (key, region) in regions {
            let adopted = ended.adopted.len();
            let mut half_open = half_open(&region, now);
            for entry in slipstack_channel::flows(&region) {
                let flow = directory::flow_of(&entry);
                // A connection that was just opening is still half-open.
                if entry.opened.is_none() && half_open.contains_key(&flow) {
                    continue;
                }
                half_open.remove(&flow);
                // It has just come to another engine.
                if entry.is_leaving && living.get_or_insert_with(|| self.living()).contains(&flow) {
                    continue;
                }
                self.end_flow(&entry, (&region, key, heirs), &mut ended, now);
            }
            ended.half_open.extend(half_open.into_values());
            if ended.adopted.len() > adopted {
                self.keep_handover(key, region);
            }
            if let Some(standby) = &self.standby {
                standby.note_forget(key);
            }
        }
        ended
    }

    /// Returns the flows in the directories of engines, but for those that are leaving them.
    fn living(&self) -> HashSet<Flow> {
        self.living_flows().into_iter().map(|it| it.0).collect()
    }

    /// Whether another process may go on with a connection.
    fn may_wait(&self, left: &LeftConnection, ended: &Ended) -> bool {
        left.loan.is_sound() && self.lent.has_room(ended.lent.len())
    }

    fn end_flow(
        &mut self,
        entry: &FlowEntry,
        (region, key, heirs): (&Region, RegionKey, Option<u64>),
        ended: &mut Ended,
        now: u64,
    ) {
        let flow = directory::flow_of(entry);
        if entry.is_udp || self.net.has_flow(&flow) {
            return;
        }
        let opened = entry.opened.as_ref();
        match opened.and_then(|opened| LeftConnection::look(region, opened)) {
            Some(left) if left.is_unaccepted => ended.unaccepted.push(Unaccepted {
                entry: *entry,
                left,
                region: region.clone(),
            }),
            Some(left) if heirs.is_some() && self.may_wait(&left, ended) => {
                ended.lent.push(Lent {
                    entry: *entry,
                    left,
                    region: region.clone(),
                    key,
                    heirs,
                });
            }
            Some(left) => match self.net.adopt_killed((entry, left), region, key, now) {
                Some(flow) => ended.adopted.push(flow),
                None => ended.doomed.push(flow),
            },
            // It may be in another engine's inbox. If it is not, the peer's next segment gets the
            // ordinary reset.
            None if entry.is_leaving => {}
            None => ended.doomed.push(flow),
        }
    }

    /// Passes unaccepted connections to other listeners, as on the kernel.
    pub(super) fn pass_unaccepted(&mut self, unaccepted: Vec<Unaccepted>, now: u64) {
        let mut doomed = Vec::new();
        for Unaccepted {
            entry,
            left,
            region,
        } in unaccepted
        {
            if !self.net.pass_killed((&entry, &left), &region, now) {
                doomed.push(directory::flow_of(&entry));
            }
        }
        self.tally.resets += doomed.len() as u64;
        self.net.reset(doomed, now);
    }

    /// Passes half-open connections to other listeners; they wait until there is one, as long as a
    /// process holds the socket.
    pub(super) fn pass_half_open(&mut self, half_open: Vec<HalfOpen>, now: u64) {
        if half_open.is_empty() {
            return;
        }
        let living = self.living();
        let mut ports = HashSet::new();
        for (image, link) in half_open {
            let Some(flow) = flow_of(&image) else {
                continue;
            };
            // It was just moving to another engine.
            if living.contains(&flow) {
                continue;
            }
            if ports.insert(flow.local.port()) {
                self.net.note_moving(flow.local.port(), now);
            }
            self.net.pass_half_open(&image, link, now);
        }
    }
}

fn flow_of(image: &HalfOpenImage) -> Option<Flow> {
    let (local, remote) = image.endpoints()?;
    Some(Flow {
        proto: Transport::Tcp,
        local,
        remote,
    })
}

/// The half-open connections that a region has records of.
fn half_open(region: &Region, now: u64) -> HashMap<Flow, HalfOpen> {
    let records = slipstack_channel::half_open_records(region);
    let images = records.into_iter().filter_map(|words| {
        let left = HalfOpenRecord(words).rebuild(Instant(now))?;
        Some((flow_of(&left.0)?, left))
    });
    images.collect()
}
