//! Requests of clients.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use slipstack_channel::REGION_LEN_MAX;
use slipstack_channel::control::{Refusal, Reply, Request, TimeWaitEntry};
use slipstack_device::{Flow, Port, Transport};
use slipstack_mem::{Region, now_ns};
use slipstack_stack::SocketError;
use tracing::{info, warn};

use crate::directory;
use crate::leases::{Bound, ClientId, LeaseError, ListenRefused, PortSpan, Route, both_protocols};
use crate::port_bits::PortBits;
use crate::steer::{self, OwnedFlow};

use super::Server;
use super::clients::{Answer, not_permitted, refuse};

/// Channel regions of one client: one per engine of a program, one per program of an instance.
const REGIONS_PER_CLIENT_MAX: usize = 1024;

impl Server {
    /// Handles all requests but the greeting. Unauthorised connections may only send their
    /// greeting, and ask.
    pub(super) fn on_request(
        &mut self,
        token: u64,
        request: Request,
        fds: Vec<OwnedFd>,
        now: u64,
    ) -> Answer {
        let Some(connection) = self.connections.get(&token) else {
            return refuse(Refusal::Unknown, "the connection is gone");
        };
        if !connection.is_trusted && !request.is_open_to_all() {
            return refuse(Refusal::NotPermitted, not_permitted("do this"));
        }
        let viewer = connection.viewer;
        match (request, connection.client) {
            (Request::Status, _) => Ok((self.status(viewer), Vec::new())),
            (Request::Why { pid }, _) => self.why(pid, viewer),
            (Request::Network, _) => {
                let network = self.resources.network.state.in_force();
                Ok((Reply::Network(Box::new(network)), Vec::new()))
            }
            (Request::FindPort { local, is_v6_only }, _) => {
                match self.net.has_port(local, is_v6_only) {
                    true => refuse(Refusal::AddressInUse, "the port has connections"),
                    false => Ok((Reply::Done, Vec::new())),
                }
            }
            (Request::Net(call), _) => self.on_call(token, viewer, call, now),
            (Request::Stop { is_forced }, _) => self.on_stop(is_forced),
            (Request::Resolve { address }, _) => Ok((
                Reply::Neighbour {
                    mac: self.resolve(address),
                },
                Vec::new(),
            )),
            (request, Some(client)) => self.on_client_request(client, request, fds, now),
            (_, None) => refuse(
                Refusal::BadRequest,
                "this connection has not been introduced",
            ),
        }
    }

    fn on_client_request(
        &mut self,
        client: ClientId,
        request: Request,
        fds: Vec<OwnedFd>,
        now: u64,
    ) -> Answer {
        match request {
            Request::LeaseSlot { thread } => self.on_lease_slot(client, thread),
            Request::LeasePorts => self.on_lease_ports(client, None),
            Request::LeasePortsBeyond { range } => self.on_lease_ports(client, Some(range)),
            Request::ListenOn {
                protocol,
                address,
                port,
                is_v6_only,
                is_reuse_port,
                link,
            } => {
                let bound = Bound {
                    is_v6_only,
                    ..Bound::new(address, port, link)
                };
                self.on_listen(client, protocol, bound, is_reuse_port)
            }
            Request::ListenOff {
                protocol,
                address,
                port,
                link,
                is_over,
            } => {
                let bound = Bound::new(address, port, link);
                if protocol == Transport::Tcp {
                    self.net.note_left(port, is_over, now);
                }
                self.on_listen_off(client, protocol, bound, now)
            }
            Request::ListenYield {
                protocol,
                port,
                is_on,
            } => self.on_listen_yield(client, protocol, port, is_on, now),
            Request::SteerFlow {
                local,
                remote,
                is_on,
            } => self.on_steer_flow(client, (local, remote), is_on),
            Request::BringFlow { local, remote } => self.on_bring_flow(client, local, remote),
            Request::TakeLeft(wanted) => self.on_take_left(client, &wanted),
            Request::RegisterRegion { id } => self.on_region(client, id, fds),
            Request::RegisterReport => self.on_report(client, fds),
            Request::Filter { known } => self.on_filter(&known),
            Request::FilterLog { lines } => self.on_filter_log(&lines),
            Request::NextInquiry => self.on_next_inquiry(client),
            Request::AnswerInquiry { id } => self.on_inquiry_answer(client, id, fds, now),
            Request::Handover { id, images } => self.on_handover(client, id, images, now),
            Request::TimeWaits { entries } => self.on_time_waits(client, &entries, now),
            Request::EndSession => {
                self.on_departure(client, now);
                self.done()
            }
            request => self.on_group_request(client, request),
        }
    }

    fn on_listen_off(
        &mut self,
        client: ClientId,
        protocol: Transport,
        bound: Bound,
        now: u64,
    ) -> Answer {
        let port = bound.port;
        let leases = &mut self.resources.state.leases;
        leases.listeners.release(client, protocol, bound);
        // A flow that has left its engine goes where the new listeners are.
        self.sweep_exceptions(now);
        self.steer_ports(&[PortSpan::one(protocol, port)]);
        self.done()
    }

    /// Every change is written down before it is answered.
    pub(super) fn done(&mut self) -> Answer {
        self.resources.state.groups = self.steer.groups();
        self.resources.save();
        Ok((Reply::Done, Vec::new()))
    }

    fn on_lease_slot(&mut self, client: ClientId, thread: u32) -> Answer {
        let slot = match self.resources.state.leases.lease_slot(client) {
            Ok(slot) => slot,
            // The device has been opened again: its descriptors are others.
            Err(LeaseError::HasSlot(slot)) => return self.pass_slot(slot, (0, 0), false),
            Err(error) => return Err(self.explain_to(client, &error)),
        };
        self.resources.state.leases.note_thread(client, thread);
        let answer = self.prepare_slot(client, slot);
        match &answer {
            Ok(_) => info!(client = client.0, slot, "a slot is leased"),
            Err((_, why)) => {
                warn!(client = client.0, slot, "a lease is taken back: {why}");
                self.take_slot_back(client, slot);
            }
        }
        answer
    }

    /// A lease that cannot be carried through is none.
    fn take_slot_back(&mut self, client: ClientId, slot: u16) {
        let freed = self.resources.state.leases.unlease_slot(client);
        let mut ports: Vec<_> = both_protocols(&freed).collect();
        ports.extend(self.claimed(client));
        self.steer_ports(&ports);
        let _ = self.resources.slots.steering().set_alive(slot, false);
        self.publish_engines();
        self.resources.state.groups = self.steer.groups();
        self.resources.save();
    }

    fn claimed(&self, client: ClientId) -> Vec<PortSpan> {
        let listeners = self.resources.state.leases.listeners.of(client);
        listeners
            .map(|listener| PortSpan::one(listener.protocol, listener.port))
            .collect()
    }

    /// Ports, steering and descriptors for a slot that was just leased.
    fn prepare_slot(&mut self, client: ClientId, slot: u16) -> Answer {
        self.follow_local_ports(now_ns());
        self.publish_engines();
        let ports = self.lease_blocks(client, self.resources.state.leases.first_blocks())?;
        self.steer_ports(&self.claimed(client));
        let _ = self.resources.slots.steering().set_alive(slot, true);
        self.done()?;
        self.pass_slot(slot, ports, true)
    }

    fn on_listen(
        &mut self,
        client: ClientId,
        protocol: Transport,
        bound: Bound,
        is_reuse_port: bool,
    ) -> Answer {
        let port = bound.port;
        if port == 0 {
            return refuse(Refusal::BadRequest, "port 0 cannot be listened on");
        }
        if !is_reuse_port && self.has_flow_of_others(client, protocol, (bound.address, port)) {
            let why = format!("another program has a connection from port {port}");
            return refuse(Refusal::AddressInUse, why);
        }
        let leases = &mut self.resources.state.leases;
        let claimed = leases.listen(client, protocol, bound, is_reuse_port);
        claimed.map_err(|error| self.explain(&error))?;
        self.steer_ports(&[PortSpan::one(protocol, port)]);
        self.done()
    }

    /// Returns whether another family has a connection from this port: see inet_csk_get_port().
    fn has_flow_of_others(
        &self,
        client: ClientId,
        protocol: Transport,
        (address, port): (IpAddr, u16),
    ) -> bool {
        let clients = &self.resources.state.leases.clients;
        let family = clients.find(client).map(|client| client.family);
        let is_other_clients = |slot: u16| {
            let owner = clients.find_by_slot(slot);
            owner.is_some_and(|(_, owner)| Some(owner.family) != family)
        };
        protocol == Transport::Tcp
            && self.living_flows().iter().any(|(flow, slot)| {
                flow.proto == Transport::Tcp
                    && flow.local.port() == port
                    && (address.is_unspecified() || flow.local.ip() == address)
                    && is_other_clients(*slot)
            })
    }

    /// A client leaves a port to the others on it for a while.
    fn on_listen_yield(
        &mut self,
        client: ClientId,
        protocol: Transport,
        port: u16,
        is_on: bool,
        now: u64,
    ) -> Answer {
        let listeners = &mut self.resources.state.leases.listeners;
        if !listeners.set_yielding(client, protocol, port, is_on) {
            return refuse(Refusal::Unknown, "no other program listens on the port");
        }
        if is_on && protocol == Transport::Tcp {
            self.net.note_moving(port, now);
        }
        self.steer_ports(&[PortSpan::one(protocol, port)]);
        self.done()
    }

    fn on_bring_flow(&mut self, client: ClientId, local: SocketAddr, remote: SocketAddr) -> Answer {
        let slot = self.resources.state.leases.clients.find(client);
        let Some(slot) = slot.and_then(|client| client.slot) else {
            return Err(self.explain(&LeaseError::NoSlotLeased));
        };
        let flow = Flow {
            proto: Transport::Tcp,
            local,
            remote,
        };
        let is_named = self
            .regions_of(client)
            .flat_map(directory::flows)
            .any(|named| named == flow);
        if !is_named {
            return refuse(Refusal::BadRequest, "the directory does not name the flow");
        }
        let steering = self.resources.slots.steering();
        if let Err(error) = self.steer.except(steering, &[(flow, slot)]) {
            warn!(slot, %error, "a connection cannot be steered");
        }
        self.done()
    }

    /// The directories show which engines have the flows of an exception.
    fn on_steer_flow(
        &mut self,
        client: ClientId,
        (local, remote): (SocketAddr, SocketAddr),
        is_on: bool,
    ) -> Answer {
        let port = local.port();
        let slot = self.resources.state.leases.clients.find(client);
        let Some(slot) = slot.and_then(|client| client.slot) else {
            return Err(self.explain(&LeaseError::NoSlotLeased));
        };
        let flow = Flow {
            proto: Transport::Udp,
            local,
            remote,
        };
        let is_named = self
            .regions_of(client)
            .flat_map(directory::all_flows)
            .any(|named| named == flow);
        if is_on && !is_named {
            return refuse(Refusal::BadRequest, "the directory does not name the flow");
        }
        let listeners = &mut self.resources.state.leases.listeners;
        let before = listeners.slots(Transport::Udp, port);
        listeners.set_connected(client, port, is_on);
        let is_moved = before != listeners.slots(Transport::Udp, port);
        let steering = self.resources.slots.steering();
        let is_routed =
            self.resources.state.leases.route(Transport::Udp, port) == Route::Slot(slot);
        if is_on
            && !(is_routed && steering.is_own(local.ip()))
            && let Err(error) = self.steer.except(steering, &[(flow, slot)])
        {
            warn!(slot, port, %error, "a flow cannot be steered");
        }
        if is_moved {
            self.steer_ports(&[PortSpan::one(Transport::Udp, port)]);
        }
        self.done()
    }

    fn on_region(&mut self, client: ClientId, id: u64, fds: Vec<OwnedFd>) -> Answer {
        let held = self
            .resources
            .regions
            .keys()
            .filter(|(owner, _)| *owner == client)
            .count();
        if held >= REGIONS_PER_CLIENT_MAX && !self.resources.regions.contains_key(&(client, id)) {
            return refuse(
                Refusal::Exhausted,
                "this client has registered as many regions as it may",
            );
        }
        match fds
            .into_iter()
            .next()
            .map(|fd| Region::open(fd, REGION_LEN_MAX))
        {
            Some(Ok(region)) => {
                if let Some(standby) = &self.standby {
                    standby.note_region((client, id), &region);
                }
                self.resources.regions.insert((client, id), region);
                self.done()
            }
            Some(Err(error)) => Err(crate::regions::refusal(
                &error,
                self.resources.dir.interface(),
            )),
            None => refuse(Refusal::BadRequest, "the channel is missing"),
        }
    }

    fn on_handover(&mut self, client: ClientId, id: u64, images: u32, now: u64) -> Answer {
        let Some(region) = self.resources.regions.get(&(client, id)).cloned() else {
            return refuse(
                Refusal::Unknown,
                "connections can be handed over only in a registered region",
            );
        };
        let mut adopted: Vec<OwnedFlow> = Vec::new();
        for image in slipstack_channel::handover_images(&region, images) {
            if let Some(flow) = self.net.adopt(image, &region, (client, id), now) {
                adopted.push((flow, 0));
            }
        }
        if !adopted.is_empty() {
            self.keep_handover((client, id), region);
        }
        self.tally.handovers += adopted.len() as u64;
        // Their frames come to this slot from now on; the ports behind them may go to others.
        if let Err(error) = self.steer.except(self.resources.slots.steering(), &adopted) {
            warn!(%error, "frames of handed over connections cannot be steered here");
        }
        Ok((Reply::Done, Vec::new()))
    }

    /// Takes the TIME-WAIT entries of an engine that ends into the own stack. Their frames come
    /// here because no engine has them, or as strays: the next owner of their ports may open a
    /// connection between the same two ends, and must not be kept from it.
    fn on_time_waits(&mut self, client: ClientId, entries: &[TimeWaitEntry], now: u64) -> Answer {
        let known = self.resources.state.leases.clients.find(client);
        if known.and_then(|client| client.slot).is_none() {
            return Err(self.explain(&LeaseError::NoSlotLeased));
        }
        for entry in entries {
            match self.net.adopt_time_wait(entry, now) {
                Ok(()) => self.tally.time_waits += 1,
                Err(SocketError::LimitReached) => {
                    return refuse(Refusal::Exhausted, "there is no room for more in TIME-WAIT");
                }
                Err(_) => self.tally.time_waits_refused += 1,
            }
        }
        Ok((Reply::Done, Vec::new()))
    }

    fn on_stop(&mut self, is_forced: bool) -> Answer {
        let programs: Vec<String> = self
            .resources
            .state
            .leases
            .clients
            .iter()
            .map(|(_, client)| format!("{} (pid {})", client.program, client.process.pid))
            .collect();
        if !programs.is_empty() && !is_forced {
            let shown = programs
                .iter()
                .take(5)
                .cloned()
                .collect::<Vec<_>>()
                .join(", ");
            let message = format!(
                "{} is in use by {shown}; end them first",
                self.resources.dir.interface()
            );
            return refuse(Refusal::Busy, message);
        }
        self.is_stopping = true;
        Ok((Reply::Done, Vec::new()))
    }

    /// Brings the steering tables in line with the leases for these ports.
    pub(super) fn steer_ports(&mut self, ranges: &[PortSpan]) {
        self.share_ports(ranges);
        let listeners = &self.resources.state.leases.listeners;
        self.net.set_servers(listeners.servers());
        let mut flows = self.living_flows();
        flows.sort_unstable_by_key(steer::order);
        let concerned = self.concerned_ports(&flows);
        let steering = self.resources.slots.steering();
        let now = slipstack_mem::now_ns();
        self.steer_free_ports(ranges, &concerned);
        let mut of_datagrams = Vec::new();
        for range in ranges {
            let protocol = range.protocol;
            for port in range.ports().filter(|port| concerned.has(protocol, *port)) {
                let leases = &self.resources.state.leases;
                let steer = &mut self.steer;
                let applied = steer.apply(steering, leases, protocol, port, &flows);
                if let Err(error) = applied {
                    warn!(port, %error, "a port cannot be steered");
                }
                match protocol {
                    Transport::Tcp => self.net.on_new_route(port, now),
                    Transport::Udp => of_datagrams.push(port),
                }
            }
        }
        self.net.on_new_datagram_routes(&of_datagrams, now);
    }

    /// Returns the ports that somebody listens on, or that have a flow or something that waits.
    fn concerned_ports(&self, flows: &[OwnedFlow]) -> PortBits {
        let listeners = self.resources.state.leases.listeners.iter();
        let with_flows = flows
            .iter()
            .map(|(flow, _)| (flow.proto, flow.local.port()));
        let listened = listeners.map(|listener| (listener.protocol, listener.port));
        let ports = with_flows.chain(listened);
        PortBits::of(ports.chain(self.steer.grouped()).chain(self.net.awaiting()))
    }

    /// Steers those of these ports that are not concerned to the engine to which they are leased:
    /// thousands, when an engine begins or ends.
    fn steer_free_ports(&self, ranges: &[PortSpan], concerned: &PortBits) {
        let blocks = self.resources.state.leases.blocks();
        let leased = |port| blocks.find_owner(port).map_or(Port::Keeper, Port::Slot);
        let ports = ranges
            .iter()
            .flat_map(|range| range.ports().map(|port| (range.protocol, port)))
            .filter(|(protocol, port)| !concerned.has(*protocol, *port))
            .map(|(protocol, port)| (protocol, port, leased(port)));
        if let Err(error) = self.resources.slots.steering().set_each(ports) {
            warn!(%error, "ports cannot be steered");
        }
    }

    /// Returns the flows of all living engines, and of connections that are completed here.
    pub(super) fn living_flows(&self) -> Vec<OwnedFlow> {
        let clients = &self.resources.state.leases.clients;
        self.resources
            .regions
            .iter()
            .filter_map(|((client, _), region)| Some((clients.find(*client)?.slot?, region)))
            .flat_map(|(slot, region)| {
                directory::all_flows(region)
                    .into_iter()
                    .map(move |flow| (flow, slot))
            })
            // An engine may be killed after our answer and before it takes them off the list.
            .filter(|(flow, _)| !self.net.carries(flow))
            .collect()
    }

    /// As [`Server::explain`], where a program's processes ask again and again.
    fn explain_to(&mut self, client: ClientId, error: &LeaseError) -> (Refusal, String) {
        let (refusal, message) = self.explain(error);
        let family = self.resources.state.leases.clients.find(client);
        let family = family.map(|client| client.family);
        if refusal != Refusal::Exhausted {
            return (refusal, message);
        }
        if !self.exhaustion.is_news(family, now_ns()) {
            return (Refusal::StillExhausted, message);
        }
        warn!("{message}");
        (refusal, message)
    }

    /// A refusal in words.
    pub(super) fn explain(&self, error: &LeaseError) -> (Refusal, String) {
        let leases = &self.resources.state.leases;
        let name = |id: ClientId| {
            leases.clients.find(id).map_or_else(
                || "another program".to_owned(),
                |client| format!("{} (pid {})", client.program, client.process.pid),
            )
        };
        let interface = self.resources.dir.interface();
        match error {
            LeaseError::UnknownClient | LeaseError::NoSlotLeased => (
                Refusal::Unknown,
                "the client has no engine on this device".to_owned(),
            ),
            LeaseError::ClientsFull => (
                Refusal::Exhausted,
                format!("{interface} has as many clients as it can take"),
            ),
            LeaseError::NoSlot { slots } => (
                Refusal::Exhausted,
                format!(
                    "all {slots} slots of {interface} are taken, and other processes wait for one; \
                     end a program, end all and start with more --slots, or use an instance, \
                     which takes one slot for all programs"
                ),
            ),
            LeaseError::HasSlot(slot) => (
                Refusal::Busy,
                format!("this client has slot {slot} already"),
            ),
            LeaseError::NoPorts => (
                Refusal::Exhausted,
                format!("no block of outgoing ports is left on {interface}"),
            ),
            LeaseError::Listen(ListenRefused::InUse(id)) => (
                Refusal::AddressInUse,
                format!("the port is in use by {}", name(*id)),
            ),
            LeaseError::Listen(ListenRefused::TableFull) => (
                Refusal::Exhausted,
                format!("{interface} has as many listening ports as it can take"),
            ),
        }
    }
}
