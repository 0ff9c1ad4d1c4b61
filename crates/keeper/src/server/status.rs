//! The replies of `status` and `why`.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use slipstack_channel::control::net::Interface;
use slipstack_channel::control::{
    DeviceReport, EngineReport, InterfaceReport, PortReport, ProgramReport, Refusal, Reply,
    SocketReport, StatusReport, Viewer, WhyReport, of_another_user,
};

use crate::directory;
use crate::leases::{Client, ClientId, ProcessKey};
use crate::notices::has_library;
use crate::process::{cores_of, thread_name, thread_of};

use super::clients::{Answer, refuse};
use super::{Server, mechanisms};

/// Sockets of one program and ports that are listed. The number of its sockets is told as well.
const SOCKETS_MAX: usize = 64;
const PORTS_MAX: usize = 256;
const PROGRAMS_MAX: usize = 128;
const SOCKETS_OF_ONE_MAX: usize = 256;

fn further(port: &Interface) -> InterfaceReport {
    InterfaceReport {
        interface: port.name.clone(),
        mac: port.mac,
        mtu: port.mtu,
        addresses: port.addresses.clone(),
    }
}

impl Server {
    pub(super) fn status(&self, viewer: Viewer) -> Reply {
        let leases = &self.resources.state.leases;
        let programs: Vec<ProgramReport> = leases
            .clients
            .iter()
            .take(PROGRAMS_MAX)
            .map(|(id, client)| self.program(id, client, SOCKETS_MAX).shown_to(viewer))
            .collect();
        let engines: Vec<EngineReport> = leases
            .clients
            .iter()
            .filter_map(|(id, client)| Some(self.engine(id, client, client.slot?)))
            .collect();
        let report = StatusReport {
            keeper_pid: std::process::id(),
            standby_pid: self.standby.as_ref().map(crate::standby::Standby::pid),
            device: self.device(engines.len() as u16),
            is_truncated: leases.clients.len() > PROGRAMS_MAX,
            engines,
            programs,
            instances: Vec::new(),
            ports: self.ports(viewer),
            orphans: self.net.orphans() as u32,
            counters: self.counters(),
        };
        Reply::Status(Box::new(report.fitted()))
    }

    fn device(&self, slots_leased: u16) -> DeviceReport {
        let network = &self.resources.network;
        DeviceReport {
            interface: self.resources.dir.interface().to_owned(),
            device: network.device.clone(),
            mac: network.mac,
            mtu: network.state.own().mtu,
            addresses: network.state.addresses(),
            further: network.state.ports().skip(1).map(further).collect(),
            hosts: network.state.own().hosts.clone(),
            routes: self.net.routes(),
            rules: self.net.rules(),
            gateways: network.state.gateways(),
            slots: self.resources.state.leases.slot_count() as u16,
            slots_leased,
            trouble: self.resources.trouble(),
            mechanisms: mechanisms::describe(&self.resources),
        }
    }

    fn engine(&self, id: ClientId, client: &Client, slot: u16) -> EngineReport {
        let flows: usize = self
            .regions_of(id)
            .map(|region| directory::flows(region).len())
            .sum();
        let pid = client.process.pid;
        let thread = self.driving_thread(id, client).unwrap_or(0);
        EngineReport {
            slot,
            pid,
            thread,
            thread_name: thread_name(pid, thread),
            cores: cores_of(pid, thread),
            program: client.program.clone(),
            instance: client.instance.clone(),
            ports: self.resources.state.leases.blocks().count_of(slot) as u32,
            flows: flows as u32,
        }
    }

    /// Returns the thread that drives a client's engine: the one that the program names, else the
    /// one that took the lease.
    fn driving_thread(&self, id: ClientId, client: &Client) -> Option<u32> {
        let named = self.regions_of(id).map(slipstack_channel::driving_thread);
        let told = { named }.find(|thread| *thread != 0);
        thread_of(client.process.pid, told.unwrap_or(client.thread))
    }

    fn program(&self, id: ClientId, client: &Client, sockets_max: usize) -> ProgramReport {
        let (sockets, sockets_count) = self.sockets(id, client, sockets_max);
        ProgramReport {
            pid: client.process.pid,
            uid: client.uid,
            program: client.program.clone(),
            slot: client.slot,
            instance: client.instance.clone(),
            sockets,
            sockets_count,
            is_concealed: false,
        }
    }

    /// Returns the first `max` of the program's report on its sockets, and the number of all;
    /// without a report, of its flow directory.
    fn sockets(&self, id: ClientId, client: &Client, max: usize) -> (Vec<SocketReport>, usize) {
        if let Some(report) = self.reports.get(&id) {
            return report.sockets(max);
        }
        if self.is_reported_by_another(client.process) {
            return (Vec::new(), 0);
        }
        let listeners = || self.resources.state.leases.listeners.of(id);
        let flows: Vec<_> = self.regions_of(id).flat_map(directory::flows).collect();
        let listening = listeners().map(|listener| SocketReport {
            fd: None,
            place: "stack".to_owned(),
            kind: listener.protocol.name().to_owned(),
            local: Some((listener.address, listener.port).into()),
            remote: None,
            why: "listens".to_owned(),
        });
        let connected = flows.iter().map(|flow| SocketReport {
            fd: None,
            place: "stack".to_owned(),
            kind: "tcp".to_owned(),
            local: Some(flow.local),
            remote: Some(flow.remote),
            why: "connected".to_owned(),
        });
        let sockets = listening.chain(connected).take(max).collect();
        (sockets, listeners().count() + flows.len())
    }

    /// Returns whether the process has several engines, the first of which reports all its sockets.
    fn is_reported_by_another(&self, process: ProcessKey) -> bool {
        let mut clients = self.resources.state.leases.clients.iter();
        clients.any(|(id, it)| it.process == process && self.reports.contains_key(&id))
    }

    pub(super) fn regions_of(
        &self,
        id: ClientId,
    ) -> impl Iterator<Item = &slipstack_mem::Region> + '_ {
        self.resources
            .regions
            .iter()
            .filter(move |((client, _), _)| *client == id)
            .map(|(_, region)| region)
    }

    /// Returns the ports that are listened on, with those processes that the viewer may see.
    fn ports(&self, viewer: Viewer) -> Vec<PortReport> {
        let leases = &self.resources.state.leases;
        let mut ports: Vec<PortReport> = Vec::new();
        for listener in leases.listeners.iter() {
            let protocol = listener.protocol;
            let client = leases.clients.find(listener.client);
            let client = client.filter(|client| viewer.may_see(client.uid));
            let pid = client.map(|client| client.process.pid);
            let same = |p: &&mut PortReport| {
                p.protocol == protocol && p.port == listener.port && p.address == listener.address
            };
            match ports.iter_mut().find(same) {
                Some(port) => port.pids.extend(pid),
                None => ports.push(PortReport {
                    protocol,
                    port: listener.port,
                    address: listener.address,
                    pids: pid.into_iter().collect(),
                }),
            }
        }
        ports.truncate(PORTS_MAX);
        ports
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let tally = &self.tally;
        let own = [
            ("control_refused", tally.refused),
            ("control_malformed", tally.malformed),
            ("programs_died", tally.crashes),
            ("flows_reset", tally.resets),
            ("connections_taken_over", tally.handovers),
            ("time_waits_taken_over", tally.time_waits),
            ("time_waits_refused", tally.time_waits_refused),
            ("connections_inherited", tally.inherited),
            ("keepers_succeeded", tally.successions),
            ("engines_stopped", tally.stalls),
        ];
        let own = own
            .into_iter()
            .filter(|(_, value)| *value > 0)
            .map(|(name, value)| (name.to_owned(), value));
        own.chain(self.net.counters()).collect()
    }

    pub(super) fn why(&self, pid: u32, viewer: Viewer) -> Answer {
        let process = std::path::PathBuf::from(format!("/proc/{pid}"));
        let owner = std::fs::metadata(&process).ok().map(|about| about.uid());
        let clients = &self.resources.state.leases.clients;
        let of_process = || {
            clients
                .iter()
                .filter(|(_, client)| client.process.pid == pid)
        };
        let mut owners = of_process().map(|(_, client)| client.uid);
        if !owners
            .next()
            .or(owner)
            .is_none_or(|uid| viewer.may_see(uid))
        {
            return refuse(Refusal::NotPermitted, of_another_user(pid));
        }
        let first = of_process().find(|(id, _)| self.reports.contains_key(id));
        let Some((id, client)) = first.or_else(|| of_process().last()) else {
            let why = match has_library(&process) {
                true => "it was started with slipstack run, and has not used the network yet",
                false if !process.exists() => "there is no such process",
                false => "it was not started with slipstack run (the library is not loaded in it)",
            };
            let interface = self.resources.dir.interface();
            let message = format!("process {pid} does not use {interface}: {why}");
            return refuse(Refusal::Unknown, message);
        };
        let report = WhyReport {
            program: self.program(id, client, SOCKETS_OF_ONE_MAX),
            interface: self.resources.dir.interface().to_owned(),
            device: self.resources.network.device.clone(),
            addresses: self.resources.network.state.addresses(),
        };
        Ok((Reply::Why(Box::new(report)), Vec::<OwnedFd>::new()))
    }
}
