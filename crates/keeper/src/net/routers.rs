//! Changes of the network and of its device, and configuration learnt from router advertisements,
//! passed from the keeper's stack to all engines and programs.

use std::sync::Arc;

use slipstack_channel::InboxMessage;
use slipstack_channel::control::net::{FilterState, Inquiry, NetworkState};
use slipstack_device::Device;
use slipstack_device::swap::Gone;
use slipstack_engine::answer_of_stack;
use slipstack_stack::{Counter, Instant, Learnt};

use super::Net;
use super::announced::tune;
use crate::routes;

/// Time after which an engine whose inbox is full is notified again.
const AGAIN_NS: u64 = 5_000_000;

impl Net {
    /// Returns the configuration by routers, if it is new since the last call.
    pub fn take_learnt(&mut self) -> Option<Learnt> {
        let (learnt, revision) = self.stack.learnt();
        if revision == self.announced.revision {
            return None;
        }
        self.announced.revision = revision;
        Some(learnt.published())
    }

    /// Applies a changed network to the own stack, and notifies engines.
    pub fn set_network(&mut self, now: u64, state: &NetworkState) {
        self.effects.device.set_vlans(&state.further_links());
        let network = Arc::new(state.clone());
        self.stack.set_network(Instant(now), network);
        tune(&mut self.stack, &state.tunables);
        let own = state.addresses().iter().map(|(ip, _)| *ip).collect();
        self.effects.set_own(own);
        self.effects.set_links(state);
        self.announced.left = self.effects.strays.engines().to_vec();
        // Before the command that makes the change is answered: what happens after it finds the
        // change in force.
        self.announced.again_at = now;
        self.tell_engines(now);
    }

    /// Lets go of the device, in whose place another one follows.
    pub fn release_device(&mut self) {
        self.effects.device = Box::new(Gone(self.effects.device.info()));
    }

    /// Goes on with another device in the place of one that is gone.
    pub fn replace_device(&mut self, device: Box<dyn Device>, now: u64) {
        self.effects.mac = device.info().mac;
        self.effects.device = device;
        self.stack.forget_neighbours();
        self.stack.announce(Instant(now), &mut self.effects);
    }

    /// Applies these packet filter rules to the own stack.
    pub fn set_filter(&mut self, filter: &FilterState, state: &NetworkState) {
        if state.filter != self.filter.revision() {
            self.filter.take_state(state.filter, filter);
        }
        self.filter.apply(&mut self.stack, state);
    }

    /// Matches of its rules that are to be logged.
    pub fn take_filter_log(&mut self, state: &NetworkState) -> Vec<String> {
        match self.stack.has_filter_log() {
            true => self.filter.lines(&self.stack.take_filter_log(), state),
            false => Vec::new(),
        }
    }

    /// For a report.
    pub fn routes(&self) -> Vec<String> {
        routes::routes(&self.stack)
    }

    pub fn rules(&self) -> Vec<String> {
        routes::rules(&self.stack)
    }

    /// Returns the image for a successor, if a router has advertised since the last call.
    pub fn take_routers(&mut self) -> Option<Vec<u64>> {
        let counters = self.stack.counters();
        let heard = counters.value(Counter::RxNdpRouters) + counters.value(Counter::RxNdpRedirects);
        if heard == self.announced.heard {
            return None;
        }
        self.announced.heard = heard;
        Some(self.stack.slaac_image())
    }

    /// Notifies engines, which then fetch the change.
    pub(super) fn tell_engines(&mut self, now: u64) {
        let is_all_told = self.announced.left.is_empty() && self.announced.choosers.is_empty();
        if is_all_told || now < self.announced.again_at {
            return;
        }
        let inboxes = &self.effects.inboxes;
        let message = InboxMessage::NetworkChanged;
        self.announced
            .left
            .retain(|slot| !inboxes.post(*slot, &message));
        self.announced.choosers.retain(|(slot, port)| {
            let port = *port;
            !inboxes.post(*slot, &InboxMessage::ChoosersChanged { port })
        });
        self.announced.again_at = now + AGAIN_NS;
    }

    /// Notifies the engines of these slots to fetch the BPF programs of a port. An engine whose
    /// inbox is full is notified again.
    pub fn notify_choosers(&mut self, port: u16, slots: Vec<u16>) {
        let inboxes = &self.effects.inboxes;
        let message = InboxMessage::ChoosersChanged { port };
        for slot in slots {
            if !inboxes.post(slot, &message) && !self.announced.choosers.contains(&(slot, port)) {
                self.announced.choosers.push((slot, port));
            }
        }
    }

    /// Notifies the engine of this slot of an inquiry. Returns `false` if its inbox is full.
    pub fn notify_inquiry(&self, slot: u16) -> bool {
        self.effects.inboxes.post(slot, &InboxMessage::Inquiry)
    }

    /// Returns the answer of the keeper's own stack, which has the connections of programs that
    /// have ended.
    pub fn answer(&mut self, now: u64, inquiry: &Inquiry) -> Vec<u8> {
        answer_of_stack(&mut self.stack, Instant(now), inquiry, &mut self.effects)
    }

    pub(super) fn tell_at(&self) -> Option<u64> {
        let is_all_told = self.announced.left.is_empty() && self.announced.choosers.is_empty();
        (!is_all_told).then_some(self.announced.again_at)
    }
}
