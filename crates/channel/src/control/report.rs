//! The reports of `slipstack status` and `slipstack why`.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use slipstack_terms::Transport;

use super::{DeviceSummary, MESSAGE_MAX, Viewer};

/// One keeper with everything attached to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    pub keeper_pid: u32,
    pub standby_pid: Option<u32>,
    pub device: DeviceReport,
    pub engines: Vec<EngineReport>,
    pub programs: Vec<ProgramReport>,
    pub instances: Vec<InstanceReport>,
    pub ports: Vec<PortReport>,
    /// Connections of ended programs that the keeper is completing.
    pub orphans: u32,
    /// Lists were cut to fit a message.
    pub is_truncated: bool,
    /// Name and value of every counter that is not zero.
    pub counters: Vec<(String, u64)>,
}

/// Bytes of a message that a report may take.
const REPORT_MAX: usize = MESSAGE_MAX - 1024;

impl StatusReport {
    /// Cuts the lists until the report fits into a message.
    pub fn fitted(mut self) -> StatusReport {
        while serde_json::to_vec(&self).is_ok_and(|bytes| bytes.len() > REPORT_MAX) {
            self.is_truncated = true;
            let longest = self.all_programs().map(|p| p.sockets.len()).max();
            match longest {
                Some(len @ 1..) => {
                    for program in self.all_programs() {
                        program.sockets.truncate(len / 2);
                    }
                }
                _ => {
                    self.ports.truncate(self.ports.len() / 2);
                    self.programs.truncate(self.programs.len() / 2);
                    for instance in &mut self.instances {
                        instance.programs.truncate(instance.programs.len() / 2);
                    }
                    if self.all_programs().next().is_none() && self.ports.is_empty() {
                        break;
                    }
                }
            }
        }
        self
    }

    fn all_programs(&mut self) -> impl Iterator<Item = &mut ProgramReport> {
        let of_instances = self
            .instances
            .iter_mut()
            .flat_map(|instance| &mut instance.programs);
        self.programs.iter_mut().chain(of_instances)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceReport {
    pub interface: String,
    #[serde(default)]
    pub device: DeviceSummary,
    pub mac: [u8; 6],
    pub mtu: u16,
    pub addresses: Vec<(IpAddr, u8)>,
    /// Further interfaces, whose addresses are included above.
    #[serde(default)]
    pub further: Vec<InterfaceReport>,
    pub hosts: Vec<IpAddr>,
    pub gateways: Vec<IpAddr>,
    /// A line for each, as people read them.
    pub routes: Vec<String>,
    pub rules: Vec<String>,
    pub slots: u16,
    pub slots_leased: u16,
    /// Reason why frames do not pass, as people read it.
    #[serde(default)]
    pub trouble: Option<String>,
    /// The mechanisms that decide which core works on a packet, a sentence for each.
    #[serde(default)]
    pub mechanisms: Vec<String>,
}

/// A further interface of the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterfaceReport {
    pub interface: String,
    pub mac: [u8; 6],
    pub mtu: u16,
    pub addresses: Vec<(IpAddr, u8)>,
}

/// One engine: a leased slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineReport {
    pub slot: u16,
    pub pid: u32,
    /// The thread that drives it, in the keeper's PID namespace; 0: not known, or it has ended.
    #[serde(default)]
    pub thread: u32,
    /// Name of that thread; empty: not known.
    #[serde(default)]
    pub thread_name: String,
    /// Processors on which its thread may run, as the kernel lists them; empty: not known.
    #[serde(default)]
    pub cores: String,
    pub program: String,
    /// Name of the instance; `None`: in the program.
    pub instance: Option<String>,
    /// Number of its outgoing ports.
    pub ports: u32,
    pub flows: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramReport {
    pub pid: u32,
    pub uid: u32,
    pub program: String,
    /// Slot of the engine that serves it, if it has one of its own.
    pub slot: Option<u16>,
    /// Instance it is attached to.
    pub instance: Option<String>,
    pub sockets: Vec<SocketReport>,
    /// Number of sockets, of which those above may be the first ones only.
    #[serde(default)]
    pub sockets_count: usize,
    /// The sockets are left out: the program belongs to another user than the one who asks.
    #[serde(default)]
    pub is_concealed: bool,
}

impl ProgramReport {
    /// Returns the report as this user may see it.
    #[must_use]
    pub fn shown_to(self, viewer: Viewer) -> ProgramReport {
        match viewer.may_see(self.uid) {
            true => self,
            false => ProgramReport {
                sockets: Vec::new(),
                sockets_count: 0,
                is_concealed: true,
                ..self
            },
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InstanceReport {
    pub name: String,
    pub pid: u32,
    pub engines: u32,
    pub programs: Vec<ProgramReport>,
    pub counters: Vec<(String, u64)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortReport {
    pub protocol: Transport,
    pub port: u16,
    pub address: IpAddr,
    pub pids: Vec<u32>,
}

/// One socket of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SocketReport {
    /// Descriptor in the program, if it is known.
    pub fd: Option<i32>,
    /// "stack", "kernel", "both", "undecided".
    pub place: String,
    /// "tcp", "udp", …
    pub kind: String,
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    /// A sentence: why it is there.
    pub why: String,
}

/// Everything that is known of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhyReport {
    pub program: ProgramReport,
    pub interface: String,
    #[serde(default)]
    pub device: DeviceSummary,
    pub addresses: Vec<(IpAddr, u8)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_report_is_cut_until_it_fits() {
        let socket = SocketReport {
            fd: Some(5),
            place: "stack".to_owned(),
            kind: "tcp".to_owned(),
            local: "10.0.0.5:80".parse().ok(),
            remote: "10.0.0.6:40000".parse().ok(),
            why: "connected".to_owned(),
        };
        let program = ProgramReport {
            pid: 1,
            uid: 0,
            program: "test".to_owned(),
            slot: Some(1),
            instance: None,
            sockets: vec![socket; 64],
            sockets_count: 64,
            is_concealed: false,
        };
        let short = StatusReport {
            programs: vec![program.clone(); 2],
            ..StatusReport::default()
        };
        assert_eq!(short.clone().fitted(), short);
        let long = StatusReport {
            programs: vec![program; 5000],
            ..StatusReport::default()
        };
        let fitted = long.fitted();
        assert!(fitted.is_truncated && !fitted.programs.is_empty());
        assert!(serde_json::to_vec(&fitted).unwrap().len() < MESSAGE_MAX);
    }
}
