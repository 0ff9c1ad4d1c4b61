//! Ends of clients: in order, with their connections handed over, or by dying.

use slipstack_device::RxMeta;
use slipstack_mem::Region;
use slipstack_stack::SocketError;
use slipstack_stack::filter::SharedLimits;
use tracing::{info, warn};

use crate::leases::{ClientId, SlotState};
use crate::regions::RegionKey;
use crate::slots::open_any_slot;
use crate::steer::OwnedFlow;

use super::Server;

/// Frames that are taken from a dead engine's queue at once, and how often.
const DRAIN_BUDGET: usize = 1024;
const DRAIN_ROUNDS: usize = 64;
/// Times at which the slot is emptied again: a sender may have looked its engine up just before it
/// was gone.
const AGAIN_NS: [u64; 2] = [20_000_000, 200_000_000];

impl Server {
    /// Handles a process that was killed, or lost its engine: its peers are informed, and its
    /// leases are free at once.
    pub(super) fn on_death(&mut self, client: ClientId, now: u64) {
        self.tally.crashes += 1;
        self.connections
            .retain(|_, connection| connection.client != Some(client));
        self.inherit_time_waits(client, now);
        self.depart(client, now);
        // The dead engine may have put a message into an inbox without waking its owner.
        for slot in self.engines() {
            self.resources.inboxes.wake(slot);
        }
    }

    /// Handles an orderly end. Connections that were not handed over are reset all the same.
    pub(super) fn on_departure(&mut self, client: ClientId, now: u64) {
        for connection in self
            .connections
            .values_mut()
            .filter(|c| c.client == Some(client))
        {
            connection.client = None;
        }
        let left = self.resources.state.leases.listeners.of(client);
        let ports: Vec<u16> = left.map(|listener| listener.port).collect();
        for port in ports {
            self.net.note_moving(port, now);
        }
        self.depart(client, now);
    }

    /// Continues the TIME-WAIT entries of an engine that was killed, except those whose two ends a
    /// later connection has.
    fn inherit_time_waits(&mut self, client: ClientId, now: u64) {
        for entry in self.left_time_waits(client, now) {
            match self.net.adopt_time_wait(&entry, now) {
                Ok(()) => self.tally.time_waits += 1,
                Err(SocketError::LimitReached) => return,
                // Already known, or of an address that is gone.
                Err(_) => self.tally.time_waits_refused += 1,
            }
        }
    }

    fn depart(&mut self, client: ClientId, now: u64) {
        self.watches.remove(&client);
        self.lost.remove(&client);
        self.reports.remove(&client);
        let ended = self.end_flows(client, now);
        // Answers of the flows' peers come here, not to the next owner of the ports.
        let excepted: Vec<OwnedFlow> = ended.staying().map(|flow| (flow, 0)).collect();
        if let Err(error) = self
            .steer
            .except(self.resources.slots.steering(), &excepted)
        {
            warn!(%error, "frames of a dead program cannot be steered here");
        }
        let resets = ended.doomed.len();
        self.tally.resets += resets as u64;
        self.tally.handovers += ended.adopted.len() as u64;
        self.net.reset(ended.doomed, now);
        for lent in ended.lent {
            self.net.expect_user(&lent.entry, now);
            self.lent.add(lent, now);
        }
        let chosen_on = self.resources.state.leases.groups.part_all(client);
        let Some(left) = self.resources.state.leases.leave(client) else {
            return;
        };
        for port in chosen_on {
            self.notify_choosers(port, None);
        }
        let (pid, slot) = (left.client.process.pid, left.client.slot);
        info!(client = client.0, pid, slot, resets, "a client has left");
        self.steer_ports(&left.ports);
        self.pass_unaccepted(ended.unaccepted, now);
        self.pass_half_open(ended.half_open, now);
        // A killed instance has left its socket; no other instance can have its name before this
        // cleanup.
        if let Some(name) = &left.client.instance
            && let Ok(socket) = self.resources.dir.instance_socket(name)
        {
            let _ = std::fs::remove_file(socket);
        }
        self.publish_engines();
        if let Some(slot) = left.client.slot {
            self.steer
                .forget_slot(self.resources.slots.steering(), slot);
            let _ = self.resources.slots.steering().set_alive(slot, false);
            self.empty_slot(slot, now);
            self.net.forget_groups(slot);
            self.vacated
                .extend(AGAIN_NS.map(|later| (slot, now + later)));
        }
        self.resources.state.groups = self.steer.groups();
        self.resources.save();
    }

    /// Keeps a region, here and in the standby, while connections with bytes in it are completed.
    pub(super) fn keep_handover(&mut self, key: RegionKey, region: Region) {
        if let Some(standby) = &self.standby {
            standby.note_handover(key);
        }
        self.resources.handovers.insert(key, region);
    }

    /// Releases regions whose connections have all been completed.
    pub(super) fn settle_handovers(&mut self) {
        for key in self.net.take_settled() {
            self.resources.handovers.remove(&key);
            if let Some(standby) = &self.standby {
                standby.note_settled(key);
            }
        }
    }

    /// Continues the connections of the former keeper; returns their flows.
    pub(super) fn inherit_orphans(&mut self, now: u64) -> Vec<OwnedFlow> {
        let mut flows = Vec::new();
        for inherited_connection in self.net.inherited() {
            // The former keeper may have been killed before it could say that it keeps the region.
            let regions = [&self.resources.handovers, &self.resources.regions];
            let region = regions
                .iter()
                .find_map(|table| table.get(&inherited_connection.key))
                .cloned();
            let key = inherited_connection.key;
            if let Some(flow) = self.net.inherit(inherited_connection, region.as_ref(), now) {
                self.resources
                    .handovers
                    .extend(region.map(|region| (key, region)));
                flows.push((flow, 0));
            }
        }
        self.tally.inherited = flows.len() as u64;
        let (net, standby) = (&self.net, self.standby.as_ref());
        self.resources.handovers.retain(|key, _| {
            let is_needed = net.has_bytes_in(key);
            if let (false, Some(standby)) = (is_needed, standby) {
                standby.note_settled(*key);
            }
            is_needed
        });
        flows
    }

    /// Empties the receive queue of an engine that is gone, so that its successor begins with an
    /// empty one. Segments of flows that end here are used; other frames are retransmitted by their
    /// senders and then reach their new owner.
    pub(super) fn empty_slot(&mut self, slot: u16, now: u64) {
        match open_any_slot(&self.resources.slots, &self.resources.words, slot) {
            Ok(mut device) => {
                let net = &mut self.net;
                for _ in 0..DRAIN_ROUNDS {
                    if device.rx(DRAIN_BUDGET, &mut |frame: &[u8], meta: RxMeta| {
                        net.feed(frame, meta, now)
                    }) == 0
                    {
                        break;
                    }
                }
            }
            Err(error) => warn!(slot, %error, "a slot cannot be emptied"),
        }
        self.net.feed_inbox(slot, now);
        self.resources.words.limits(slot).clear();
        self.resources.state.leases.free_slot(slot);
    }

    /// Frames and messages that were on their way to an engine while it ended.
    pub(super) fn empty_vacated(&mut self, now: u64) {
        let is_due = |(_, at): &(u16, u64)| *at <= now;
        let all = std::mem::take(&mut self.vacated);
        let (due, later): (Vec<_>, Vec<_>) = all.into_iter().partition(is_due);
        self.vacated = later;
        for (slot, _) in due {
            if self.resources.state.leases.slot_state(slot) == Some(SlotState::Free) {
                self.empty_slot(slot, now);
            }
        }
    }

    /// An engine has taken a stray flow in: from now on its frames go there at once.
    pub(super) fn follow_strays(&mut self, now: u64) {
        let strays = self.net.stray_flows(now);
        if strays.is_empty() {
            return;
        }
        let steering = self.resources.slots.steering();
        let found: Vec<OwnedFlow> = self
            .living_flows()
            .into_iter()
            .filter(|(flow, slot)| {
                strays.contains(flow)
                    && steering.find_slot(flow.proto, flow.local, flow.remote) != *slot
            })
            .collect();
        if let Err(error) = self.steer.except(steering, &found) {
            warn!(%error, "stray flows cannot be steered");
        }
    }

    /// Informs the own stack of the candidates for strays, which also forward packets.
    pub(super) fn publish_engines(&mut self) {
        let mut engines = self.engines();
        engines.retain(|slot| !self.stalls.is_stalled(*slot));
        self.spread_transit(&engines);
        self.net.set_engines(engines);
    }

    /// The slots that engines lease.
    pub(super) fn engines(&self) -> Vec<u16> {
        let clients = self.resources.state.leases.clients.iter();
        clients.filter_map(|(_, client)| client.slot).collect()
    }

    /// Spreads packets for others over these engines; without one they are passed on here.
    fn spread_transit(&mut self, engines: &[u16]) {
        let takers = match self.resources.network.state.is_forwarding {
            true => engines,
            false => &[],
        };
        let steering = self.resources.slots.steering();
        if let Err(error) = self.steer.spread_transit(steering, takers) {
            warn!(%error, "forwarded packets cannot be steered");
        }
    }

    /// Removes exceptions of flows that have ended: some may be in TIME-WAIT.
    pub(super) fn sweep_exceptions(&mut self, now: u64) {
        if !self.steer.has_exceptions() {
            return;
        }
        let living: std::collections::HashSet<OwnedFlow> =
            self.living_flows().into_iter().collect();
        let (net, lent) = (&self.net, &self.lent);
        let steering = self.resources.slots.steering();
        let ended = self.steer.forget_ended(steering, |flow, slot| {
            (slot == 0 && (net.has_flow(flow) || lent.has(flow))) || living.contains(&(*flow, slot))
        });
        ended
            .iter()
            .for_each(|port| self.net.note_left(*port, true, now));
    }
}
