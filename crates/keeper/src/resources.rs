//! Resources of a keeper that its successor inherits: the device with all its slots, the shared
//! regions, the lock, the control socket and the journal.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use slipstack_channel::control::net::{FilterState, Interface, NetworkState};
use slipstack_channel::control::{self, DeviceSummary, Switch};
use slipstack_device::{Backend, Description, PortSettings, Slots, choose, find, iface};
use slipstack_mem::Region;
use slipstack_mem::process::end_signals;
use slipstack_stack::Tunable;
use tracing::error;

use crate::device_state::DeviceState;
use crate::error::KeeperError;
use crate::interfaces;
use crate::journal::Journal;
use crate::kernel_flows::KernelFlow;
use crate::leases::{Leases, PortBlocks};
use crate::local_ports::LocalPortsWatch;
use crate::neighbours::Neighbours;
use crate::network::Network;
use crate::orphans;
use crate::pair;
use crate::random::random_u64;
use crate::regions::{Inboxes, RegionKey, SLOTS_MAX, SlotWords};
use crate::runtime::{RuntimeDir, RuntimeLock, base_directory, network_namespace};
use crate::slots::open_keeper_slot;
use crate::steer::{ListenerGroup, Spread};
use crate::{autoconf, claims, conflict, routes};

/// The device that a keeper is to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceChoice {
    /// Kind and argument, such as `tap` or `replay:FILE`; `None` selects automatically.
    pub kind: Option<String>,
    /// `None`: the kind's default.
    pub interface: Option<String>,
    /// 802.1Q VLAN that the own link of each port is in; 0, or not there = what has no tag.
    pub vlans: Vec<u16>,
    /// Settings of every port.
    pub settings: PortSettings,
}

impl DeviceChoice {
    /// An interface that exists.
    pub fn of_interface(name: &str) -> DeviceChoice {
        DeviceChoice {
            interface: Some(name.to_owned()),
            ..DeviceChoice::default()
        }
    }

    /// Returns the back end, its argument beside the interface's name, and the reason of the
    /// choice.
    ///
    /// # Errors
    /// There is no such kind of device.
    fn backend(&self) -> Result<(&'static dyn Backend, Option<&str>, String), KeeperError> {
        match &self.kind {
            Some(kind) => {
                let (backend, argument) = find(kind)?;
                Ok((backend, argument, format!("--device {kind} asks for it")))
            }
            None => {
                let (backend, why) = choose(self.interface.as_deref());
                Ok((backend, None, why))
            }
        }
    }

    /// The interface's name, or that of a device without one.
    ///
    /// # Errors
    /// There is no such kind of device, or this one needs an interface.
    pub fn interface(&self) -> Result<&str, KeeperError> {
        if let Some(name) = &self.interface {
            return Ok(name);
        }
        let (backend, ..) = self.backend()?;
        let missing = || KeeperError::NoInterface {
            kind: backend.name(),
        };
        backend.kind().default_interface.ok_or_else(missing)
    }
}

/// Options with which a keeper is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Base of the runtime directories; `None`: the user's default.
    pub base: Option<PathBuf>,
    pub device: DeviceChoice,
    /// The network that the stack is to have: its ports in their order, then VLANs. Link-layer
    /// addresses, numbers and MTUs are what the device says. A TAP of our own takes a free private
    /// pair if its port has no address.
    pub network: NetworkState,
    /// Way in which new flows find one of several engines.
    pub spread: Spread,
    /// Engines that may run at a time.
    pub slots: u16,
    /// Outgoing ports, inclusive.
    pub ports: (u16, u16),
    /// IPv6 addresses, router and MTU come from the link's routers.
    pub is_autoconfigured: bool,
    /// Stay when the last program has gone.
    pub is_persistent: bool,
    /// The packet filter with which it begins.
    pub filter: FilterState,
    /// Numbers of its own stack, by name.
    pub tunables: Vec<(String, u32)>,
}

impl Options {
    /// The switches of the device that are on.
    pub fn switches(&self) -> impl Iterator<Item = Switch> + use<> {
        let PortSettings {
            has_no_segmentation,
            has_no_checksum,
            is_promiscuous,
        } = self.device.settings;
        let all = [
            (Switch::NoSegmentation, has_no_segmentation),
            (Switch::NoChecksum, has_no_checksum),
            (Switch::Promiscuous, is_promiscuous),
            (Switch::Autoconfigured, self.is_autoconfigured),
            (Switch::Forwarding, self.network.is_forwarding),
        ];
        let on = all.into_iter().filter(|(_, is_on)| *is_on);
        on.map(|(switch, _)| switch)
    }

    /// Returns whether the kernel's range of local ports is not the stack's: an option names
    /// another one, or the kernel has the same addresses.
    fn has_own_ports(&self) -> bool {
        let range = [Tunable::PortFirst, Tunable::PortLast].map(Tunable::name);
        let mut named = self.tunables.iter().map(|(name, _)| name.as_str());
        named.any(|name| range.contains(&name)) || self.network.share.is_some()
    }

    /// The runtime directory these options lead to.
    pub fn directory(&self) -> Result<RuntimeDir, KeeperError> {
        let base = match &self.base {
            Some(base) => base.clone(),
            None => base_directory()?,
        };
        Ok(RuntimeDir::below(
            &base,
            network_namespace()?,
            self.device.interface()?,
        )?)
    }
}

/// State that is written to the journal.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    pub leases: Leases,
    /// Listener groups in the steering tables.
    pub groups: Vec<ListenerGroup>,
    /// The secret of clients that may use the device.
    pub capability: u64,
    /// Key of initial sequence numbers and timestamp offsets, for all engines: a later connection
    /// of the same two ends goes on where the former engine was (RFC 6528 3, RFC 7323 5.4).
    pub sequence_key: [u64; 2],
    pub had_clients: bool,
    /// `Stack::slaac_image`.
    pub routers: Vec<u64>,
    /// TCP connections of the kernel's to ports that are the stack's by now.
    pub kernel_flows: Vec<KernelFlow>,
    /// The network with its last change.
    pub network: NetworkState,
    /// The rules of its packet filter.
    pub filter: FilterState,
}

/// Everything that a keeper holds.
pub struct Resources {
    pub options: Options,
    pub dir: RuntimeDir,
    pub lock: RuntimeLock,
    pub listener: OwnedFd,
    /// Readable when this process is asked to end; the standby has its own.
    pub signals: OwnedFd,
    /// `None`: the kernel's range of local ports is not the stack's.
    pub local_ports: Option<LocalPortsWatch>,
    pub slots: Slots,
    pub network: Network,
    pub words: SlotWords,
    pub inboxes: Inboxes,
    pub neighbours: Neighbours,
    pub journal: Journal,
    /// The tables of the packet filter, which are large and rarely change.
    pub tables: Journal,
    pub state: State,
    /// The channel regions of the clients.
    pub regions: HashMap<RegionKey, Region>,
    /// Regions with bytes of connections that the keeper completes for ended programs.
    pub handovers: HashMap<RegionKey, Region>,
    /// The record of those connections.
    pub orphans: Region,
}

impl Resources {
    /// Opens the device and everything else. On failure nothing is left behind.
    pub fn open(options: Options) -> Result<Resources, KeeperError> {
        if options.slots == 0 || options.slots >= SLOTS_MAX {
            return Err(KeeperError::TooManySlots {
                wanted: options.slots,
                max: SLOTS_MAX - 1,
            });
        }
        let dir = options.directory()?;
        dir.create()?;
        let Some(lock) = dir.try_lock()? else {
            return Err(KeeperError::AlreadyRunning {
                interface: dir.interface().to_owned(),
            });
        };
        // Before anything is changed, including the directory, whose files hold new keepers off.
        if claims::are_held(&dir) {
            return Err(KeeperError::Orphaned {
                interface: dir.interface().to_owned(),
                programs: claims::find_remaining(&dir),
            });
        }
        Resources::open_ports(options, dir.clone(), lock).inspect_err(|_| dir.remove())
    }

    /// The directory is known by the names of all interfaces.
    fn open_ports(
        options: Options,
        dir: RuntimeDir,
        lock: RuntimeLock,
    ) -> Result<Resources, KeeperError> {
        for port in options.network.ports().skip(1) {
            if !dir.claim_name(&port.name)? {
                return Err(KeeperError::AlreadyRunning {
                    interface: port.name.clone(),
                });
            }
        }
        Resources::open_locked(options, dir, lock)
    }

    fn open_locked(
        options: Options,
        dir: RuntimeDir,
        lock: RuntimeLock,
    ) -> Result<Resources, KeeperError> {
        let count = options.slots + 1;
        let words = SlotWords::create().map_err(KeeperError::io("create shared memory"))?;
        let (mut slots, mut network) = open_device(&options, count)?;
        identify(&slots, &words, &mut network)?;
        let capabilities = slots.backend().capabilities();
        interfaces::add_wanted(&options.network, capabilities, &mut network.state)?;
        routes::check(&network.state)?;
        network.state.filter = u64::from(!options.filter.rules.is_empty());
        let mut routers = Vec::new();
        if capabilities.has_neighbours {
            conflict::probe(&slots, &words, &network)?;
            if options.is_autoconfigured {
                routers = autoconf::configure(&slots, &words, &mut network, dir.interface())?;
            }
        }
        let steering = slots.steering();
        steering.set_own(&network.state.addresses())?;
        steering.set_forward(options.network.is_forwarding)?;
        steering.set_share(options.network.share.is_some())?;
        slots.install_ingress_drop()?;
        let listener = control::listen(&dir.control_socket()).map_err(|error| KeeperError::Io {
            doing: "create the control socket",
            error: std::io::Error::other(error),
        })?;
        rustix::fs::chmod(dir.control_socket(), rustix::fs::Mode::from_raw_mode(0o666)).map_err(
            |error| KeeperError::io("open the control socket to programs")(error.into()),
        )?;
        let sequence_key = [random_u64(), random_u64()];
        Ok(Resources {
            inboxes: Inboxes::create(count).map_err(KeeperError::io("create shared memory"))?,
            neighbours: Neighbours::create().map_err(KeeperError::io("create shared memory"))?,
            journal: Journal::create().map_err(KeeperError::io("create shared memory"))?,
            tables: Journal::create().map_err(KeeperError::io("create shared memory"))?,
            state: State {
                leases: Leases::new(
                    usize::from(count),
                    PortBlocks::new(options.ports, sequence_key),
                ),
                groups: Vec::new(),
                capability: random_u64(),
                sequence_key,
                had_clients: false,
                routers,
                kernel_flows: Vec::new(),
                network: network.state.clone(),
                filter: options.filter.clone(),
            },
            regions: HashMap::new(),
            handovers: HashMap::new(),
            orphans: orphans::create().map_err(KeeperError::io("create shared memory"))?,
            local_ports: (!options.has_own_ports())
                .then(LocalPortsWatch::new)
                .flatten(),
            options,
            dir,
            lock,
            listener,
            signals: end_signals().map_err(KeeperError::io("receive signals"))?,
            slots,
            network,
            words,
        })
    }

    /// Writes the state down for a successor. Called after every change, before it is answered.
    pub fn save(&self) {
        if !self.journal.write(&self.state) {
            error!("the state does not fit; a successor would miss the last change");
        }
    }

    /// Saves the packet filter's tables.
    pub fn save_tables(&self) {
        if !self.tables.write(&self.state.filter.tables) {
            error!("the filter's tables do not fit; a successor would miss the last change");
        }
    }

    /// Reads back the former keeper's journal.
    pub fn restore(&mut self) {
        match self.journal.read::<State>() {
            Some(state) if state.leases.is_sound(usize::from(self.slots.count())) => {
                self.network.state = state.network.clone();
                self.state = state;
                self.state.filter.tables = self.tables.read().unwrap_or_default();
            }
            _ => error!("the former keeper's state is not usable"),
        }
    }

    /// The interface of the device that has been deleted since it was opened, if one has.
    pub fn find_deleted(&self) -> Option<&str> {
        let deleted = self
            .troubled()
            .find(|(_, state)| *state == DeviceState::Deleted);
        deleted.map(|(port, _)| port.name.as_str())
    }

    /// Reason why frames do not pass, as people read it.
    pub fn trouble(&self) -> Option<String> {
        let is_lone = self.network.state.ports().count() == 1;
        interfaces::trouble(self.troubled(), is_lone, self.network.device.is_own)
    }

    /// The interfaces that do not pass frames. A TAP of the keeper's own works under any name and
    /// in any namespace.
    fn troubled(&self) -> impl Iterator<Item = (&Interface, DeviceState)> {
        let device = &self.network.device;
        let troubled = interfaces::troubled(&self.network.state);
        troubled.filter(|(_, state)| match state {
            DeviceState::Deleted if device.is_own => self.slots.has_lost_own(),
            _ => device.has_interface,
        })
    }

    /// Removes everything. The lock is released last, so that a new keeper finds the device gone.
    pub fn remove(self) {
        let Resources {
            dir, lock, slots, ..
        } = self;
        drop(slots);
        dir.remove();
        drop(lock);
    }
}

fn open_device(options: &Options, count: u16) -> Result<(Slots, Network), KeeperError> {
    let (backend, _, why) = options.device.backend()?;
    let is = backend.capabilities();
    let name = options.device.interface()?;
    let own = options.network.own();
    let has_vlans = options.network.interfaces.iter().any(|it| !it.is_port());
    let has_addresses = !own.addresses.is_empty() || has_vlans;
    if !has_addresses && !is.makes_interface && !options.is_autoconfigured {
        return Err(KeeperError::NoAddress {
            interface: name.to_owned(),
        });
    }
    let pairs = match is.makes_interface {
        true => Some(pair::of_tap(&own.addresses)?),
        false => None,
    };
    let slots = open_slots(options, count)?;
    let mut own = Interface {
        name: name.to_owned(),
        addresses: own.addresses.clone(),
        ..Interface::default()
    };
    if let Some(pairs) = pairs {
        let pairs = pair::settle(name, pairs)?;
        iface::set_up(name)?;
        own.addresses = pairs.iter().map(|pair| (pair.stack, pair.prefix)).collect();
        own.hosts = pairs.iter().map(|pair| pair.host).collect();
    }
    let kind = match slots.mode() {
        Some(mode) => format!("{}:{mode}", backend.name()),
        None => backend.name().to_owned(),
    };
    let network = Network {
        device: DeviceSummary {
            kind,
            title: backend.kind().title.to_owned(),
            why,
            asked: options.device.kind.clone(),
            has_interface: is.has_interface,
            is_heard: is.is_heard,
            is_own: is.makes_interface,
            switches: options.switches().collect(),
            slots: options.slots,
            spread: options.spread.to_string(),
        },
        mac: [0; 6],
        tso_max: 0,
        has_udp_segmentation: false,
        slaac: None,
        tunables: options.tunables.clone(),
        state: NetworkState {
            revision: 1,
            interfaces: bare_ports(own, &options.network),
            ..options.network.clone()
        },
    };
    Ok((slots, network))
}

fn open_slots(options: &Options, count: u16) -> Result<Slots, KeeperError> {
    let (backend, argument, _) = options.device.backend()?;
    let names = options.network.ports().skip(1).map(|it| it.name.as_str());
    let names = [options.device.interface()?].into_iter().chain(names);
    let vlans = options.device.vlans.iter().copied();
    let ports = names.zip(vlans.chain(std::iter::repeat(0)));
    let descriptions: Vec<Description<'_>> = ports
        .map(|(interface, vlan)| Description {
            interface,
            argument,
            slots: count,
            vlan,
            settings: options.device.settings,
        })
        .collect();
    Ok(Slots::open_ports(
        backend,
        &descriptions,
        options.spread.rule()?,
    )?)
}

/// The ports before anything is known of them but names; the first has its addresses already.
fn bare_ports(own: Interface, wanted: &NetworkState) -> Vec<Interface> {
    let further = wanted.ports().skip(1).map(|port| Interface {
        name: port.name.clone(),
        link: port.link,
        ..Interface::default()
    });
    [own].into_iter().chain(further).collect()
}

/// Reads the properties of the device itself.
fn identify(slots: &Slots, words: &SlotWords, network: &mut Network) -> Result<(), KeeperError> {
    let info = open_keeper_slot(slots, words)?.info();
    network.mac = info.mac;
    network.tso_max = info.tso_max;
    network.has_udp_segmentation = info.udp_segmentation;
    interfaces::identify(slots, &mut network.state);
    if let Some(own) = network.state.interfaces.first_mut() {
        own.mac = info.mac;
        own.mtu = info.mtu;
    }
    Ok(())
}
