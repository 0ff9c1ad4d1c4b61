//! The plan: better settings, and why.

use std::fs;
use std::path::{Path, PathBuf};

use slipstack_device::ethtool::{Ethtool, Field, Flows};
use slipstack_device::iface::KernelInterface;

use super::Proposal;
use super::item::Location;
use super::machine::{Card, cores, folder, interrupts, is_same_mask, mask, queues};
use super::rss::{self, Rss};

/// Entries of a ring that are worth their memory.
const RING_MAX: u32 = 4096;
/// Longest wait of a received frame for its interrupt, in microseconds.
const RX_USECS: u32 = 50;
const SOMAXCONN: u64 = 4096;
const NOFILE: u64 = 65_536;

/// All settings that this machine has, right ones too. `is_symmetric`: both directions of a flow
/// are to come to one queue.
pub fn proposals(interface: &KernelInterface, is_symmetric: bool) -> Vec<Proposal> {
    let cores = cores();
    let mut plan = Plan {
        interface,
        proposals: Vec::new(),
    };
    plan.driver(cores.len() as u32);
    plan.rss(is_symmetric);
    match folder(interface) {
        Some(folder) => {
            plan.spread(&folder, &cores);
            plan.interrupts(&folder, &cores);
            plan.card(&folder);
        }
        None => plan.advise(
            "queues in /sys",
            "hidden".to_owned(),
            "/sys shows another network namespace: ip netns exec shows this one's",
        ),
    }
    plan.system();
    plan.proposals
}

struct Plan<'a> {
    interface: &'a KernelInterface,
    proposals: Vec<Proposal>,
}

impl Plan<'_> {
    /// Adds an existing setting; `better` gets its present value.
    fn add(
        &mut self,
        name: String,
        place: Location,
        why: &'static str,
        better: impl FnOnce(&str) -> Option<String>,
    ) {
        let Some(now) = place.read(self.interface) else {
            return;
        };
        let wanted = better(&now).filter(|wanted| *wanted != now);
        self.proposals.push(Proposal {
            name,
            now,
            wanted,
            why,
            place: Some(place),
        });
    }

    /// Adds a number of the driver that should be at least, or at most, another one.
    fn field(&mut self, field: Field, why: &'static str, better: impl FnOnce(u32) -> Option<u32>) {
        let name = field.name().to_owned();
        self.add(name, Location::Driver(field), why, |now| {
            better(now.parse().ok()?).map(|wanted| wanted.to_string())
        });
    }

    fn driver(&mut self, cores: u32) {
        let Ok(ethtool) = Ethtool::new() else {
            return;
        };
        let read = |field| ethtool.read(&self.interface.name, field).unwrap_or(0);
        let most = |max: u32, enough: u32| {
            move |now: u32| (now < max.min(enough)).then_some(max.min(enough))
        };
        let (combined, rx, tx) = (
            read(Field::COMBINED_MAX),
            read(Field::RX_QUEUES_MAX),
            read(Field::TX_QUEUES_MAX),
        );
        let (rx_ring, tx_ring) = (read(Field::RX_RING_MAX), read(Field::TX_RING_MAX));
        let is_adaptive = read(Field::ADAPTIVE_RX) != 0;
        let queues = "a queue for each core: an engine and its frames on one";
        let rings = "a longer ring rides out a longer pause of its reader";
        if combined > 0 {
            self.field(Field::COMBINED, queues, most(combined, cores));
        } else {
            self.field(Field::RX_QUEUES, queues, most(rx, cores));
            self.field(Field::TX_QUEUES, queues, most(tx, cores));
        }
        self.field(Field::RX_RING, rings, most(rx_ring, RING_MAX));
        self.field(Field::TX_RING, rings, most(tx_ring, RING_MAX));
        let waits = "how long a frame waits for its interrupt: more is felt by each";
        self.field(Field::RX_USECS, waits, |now| {
            (now > RX_USECS && !is_adaptive).then_some(RX_USECS)
        });
        for field in Field::OFFLOADS {
            let why = "less work for each byte";
            self.field(field, why, |now| (now == 0).then_some(1));
        }
    }

    /// Which queue a received frame comes to.
    fn rss(&mut self, is_symmetric: bool) {
        let interface = &self.interface.name;
        let why = "each queue, and so the engine on it, gets its share of the flows";
        let add = |plan: &mut Self, part: Rss, why, better: &dyn Fn(&str) -> Option<String>| {
            plan.add(part.name().to_owned(), Location::Rss(part), why, better);
        };
        add(self, Rss::Table, why, &|now| {
            rss::better_table(interface, now)
        });
        let why = "without ports all connections of one peer come to one queue";
        for flows in [Flows::TcpOverIpv4, Flows::TcpOverIpv6] {
            add(self, Rss::Fields(flows), why, &rss::better_fields);
        }
        let (why, better): (_, fn(&str) -> Option<String>) = match is_symmetric {
            true => (
                "both directions of a flow come to one queue",
                rss::symmetric_key,
            ),
            false => (
                "--symmetric-rss has both directions of a flow come to one queue",
                |_| None,
            ),
        };
        add(self, Rss::Key, why, &better);
    }

    /// Which cores send by which queue, and which take over from those that receive.
    fn spread(&mut self, folder: &Path, cores: &[usize]) {
        let (rx, tx) = (queues(folder, "rx"), queues(folder, "tx"));
        let own = |queue: usize| mask(&[cores[queue % cores.len()]]);
        let unless_same =
            |now: &str, wanted: String| (!is_same_mask(now, &wanted)).then_some(wanted);
        if tx.len() > 1 {
            for (queue, name) in tx.iter().enumerate() {
                let place = Location::Interface(format!("{name}/xps_cpus"));
                let why = "a core sends by its own queue";
                self.add(format!("XPS of tx-{queue}"), place, why, |now| {
                    unless_same(now, own(queue))
                });
            }
        }
        // Frames of a card with fewer queues than cores; a virtual link's come on their sender's
        // core.
        let is_card = folder.join("device").exists();
        let needs_rps = is_card && rx.len() < cores.len();
        for (queue, name) in rx.iter().enumerate() {
            let place = Location::Interface(format!("{name}/rps_cpus"));
            let why = match needs_rps {
                true => "fewer queues than cores: the kernel spreads what they receive",
                false => "enough queues: no core hands its frames to another",
            };
            let wanted = if needs_rps { mask(cores) } else { mask(&[]) };
            self.add(format!("RPS of rx-{queue}"), place, why, |now| {
                unless_same(now, wanted)
            });
        }
    }

    fn interrupts(&mut self, folder: &Path, cores: &[usize]) {
        let numbers = interrupts(folder, &self.interface.name);
        for (at, number) in numbers.iter().enumerate() {
            let place = Location::Interrupt(*number);
            let why = "each queue interrupts one core, and each core is one's";
            self.add(place.name(), place, why, |_| {
                Some(cores[at % cores.len()].to_string())
            });
        }
        if !numbers.is_empty() {
            let place = Location::Service("irqbalance".to_owned());
            let why = "it would move the interrupts again";
            self.add(place.name(), place, why, |now| {
                (now == "active").then(|| "inactive".to_owned())
            });
        }
    }

    /// The card's place in the machine, which nothing here can change.
    fn card(&mut self, folder: &Path) {
        let nodes = Path::new("/sys/devices/system/node");
        let card = Card::read(&folder.join("device"), nodes);
        if let Some(lanes) = card.lanes {
            let why = match queues(folder, "rx").len() > lanes as usize {
                true => "fewer than queues: more queues than lanes slow a card down (ethtool -L)",
                false => "enough for the card's queues",
            };
            self.advise("PCIe lanes of the card", lanes.to_string(), why);
        }
        if let Some((node, cores)) = card.node {
            let why = "run engines on cores of the card's node (--cores), frames lie there";
            self.advise(
                "memory node of the card",
                format!("{node}: cores {cores}"),
                why,
            );
        }
    }

    fn system(&mut self) {
        let place = Location::File(PathBuf::from("/proc/sys/net/core/somaxconn"));
        let why = "connections that may wait to be accepted";
        self.add("net.core.somaxconn".to_owned(), place, why, |now| {
            let is_low = now.parse::<u64>().is_ok_and(|now| now < SOMAXCONN);
            is_low.then(|| SOMAXCONN.to_string())
        });
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let now = limit.current.unwrap_or(u64::MAX);
        self.advise(
            "open files (ulimit -n)",
            now.to_string(),
            match now < NOFILE {
                true => "low: raise it in the shell or by LimitNOFILE= of the service",
                false => "a descriptor for each connection",
            },
        );
        let pages = fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default();
        self.advise(
            "huge pages",
            pages.trim().to_owned(),
            "Slipstack needs none",
        );
    }

    /// Something that is not for this command to change.
    fn advise(&mut self, name: &str, now: String, why: &'static str) {
        self.proposals.push(Proposal {
            name: name.to_owned(),
            now,
            wanted: None,
            why,
            place: None,
        });
    }
}
