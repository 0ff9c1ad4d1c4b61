//! DPDK: any port that it has a driver for, through a process of its own.
//!
//! Only the program `slipstack-dpdk`, installed beside `slipstack`, is linked to DPDK's libraries.
//! It is started with the device, drives the port for as long as any process holds the device, and
//! steers each frame to its slot ([`rings`]). Slot 0 restarts it when it has ended ([`watch`]).

mod options;
mod process;
mod raw;
mod reason;
mod rings;
mod setup;
mod slot;
mod watch;

use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};
use slipstack_mem::Doorbell;

use crate::backend::{
    Backend, Capabilities, Description, DeviceKind, NO_INTERFACE, Opened, TagSupport,
};
use crate::device::Device;
use crate::error::DeviceError;
use crate::parts::{LinkProperties, SlotParts, TSO_MAX, own_value};
use crate::position::RingPosition;
use crate::rss::RssParams;
use crate::steering::Steering;
use process::{Port, system};
use slot::{DpdkSlot, SlotSetup};
use watch::Watch;

pub use crate::partial::is_partial;
pub use options::{Options, QUEUES_MAX};
pub use rings::{CELLS, DATA_MAX, FRAME_MAX, Malformed, Reader, Rings, Tag, Waiting, Way, Writer};
pub use setup::{Answer, Order, PortDescription, PortRss, Setup, queue_of};

/// Slots of a device: the message that starts its process carries two descriptors of each.
const SLOTS_MAX: u16 = 64;

/// The row of the table.
pub(crate) struct Dpdk;

/// The back end's own part of a slot's parameters.
#[derive(Debug, Serialize, Deserialize)]
struct DpdkParams {
    /// Present in the keeper's slot alone.
    options: Option<Options>,
    rss: Option<RssParams>,
}

impl Backend for Dpdk {
    fn kind(&self) -> &'static DeviceKind {
        &DeviceKind {
            name: "dpdk",
            title: "DPDK port",
            usage: "dpdk:EAL-ARGUMENTS [-- OPTIONS] (a port that DPDK has a driver for)",
            takes_path: false,
            default_interface: Some("dpdk0"),
            capabilities: Capabilities {
                has_neighbours: true,
                has_vlans: true,
                tags: TagSupport::Single,
                ..Capabilities::NONE
            },
        }
    }

    fn open(
        &self,
        description: &Description<'_>,
        steering: &Steering,
    ) -> Result<Opened, DeviceError> {
        let options = Options::parse(description.argument)?;
        if description.slots > SLOTS_MAX {
            return Err(DeviceError::Unsuitable(format!(
                "a DPDK port has at most {} engines: give --slots a smaller number",
                SLOTS_MAX - 1
            )));
        }
        let port = Port::new(steering.read_only_fds()?, description.slots, options.queues);
        let port = port.map_err(system)?;
        let order = Order { options, mac: None };
        let told = match port.start(&order)?.wait() {
            Answer::Ready(told) => told,
            Answer::Failed(sentence) => return Err(DeviceError::Unsuitable(sentence)),
        };
        Ok(Opened {
            index: NO_INTERFACE,
            name: description.interface.to_owned(),
            link: LinkProperties {
                index: 0,
                mac: told.mac,
                mtu: told.mtu,
                tx_checksum: told.has_checksum,
                tso_max: if told.has_tso { TSO_MAX } else { 0 },
                udp_segmentation: false,
                vlan: 0,
            },
            slots: make_slots(&port, order.options, &told).map_err(system)?,
            held: Vec::new(),
            needs_ingress_drop: false,
            delivery: delivery(&told),
            mode: Some(told.mode),
        })
    }

    fn waits_at(&self, _own: &serde_json::Value) -> Vec<usize> {
        vec![BELL_AT]
    }

    fn adopt(
        &self,
        parts: SlotParts,
        _position: RingPosition,
    ) -> Result<Box<dyn Device>, DeviceError> {
        let params: DpdkParams = parts.params.own()?;
        let link = parts.params.link;
        let few = || DeviceError::BadParameters("a slot has too few descriptors");
        let mut fds = parts.fds.into_iter();
        let mut next = || fds.next().ok_or_else(few);
        let rings = Rings::open(next()?).map_err(system)?;
        let bell = Doorbell::from_fd(next()?);
        let port_bell = Doorbell::from_fd(next()?);
        let life = next()?.into();
        let watch = match params.options {
            None => None,
            Some(options) => {
                let order = Order {
                    options,
                    mac: Some(link.mac),
                };
                let queues = order.options.queues;
                let port = Port::from_fds(fds.collect(), queues).map_err(system)?;
                Some(Watch::new(port, order, bell.as_fd()).map_err(system)?)
            }
        };
        let slot = DpdkSlot::new(SlotSetup {
            link,
            rings,
            bell,
            port_bell,
            life,
            watch,
            map: params.rss.as_ref().and_then(RssParams::map),
        });
        Ok(Box::new(slot.map_err(system)?))
    }
}

/// Says how flows come to the queues, if there are several.
fn delivery(told: &PortDescription) -> Option<String> {
    let queues = told.queues;
    (queues > 1).then(|| match &told.rss {
        Some(rss) => format!(
            "{queues}, each with a thread; connections take ports that the port's RSS (Toeplitz, \
             {} entries) puts into their engine's queue, as long as answers come there",
            rss.table.len()
        ),
        None => format!(
            "{queues}, each with a thread; the port does not say which flows come to which, so \
             connections take any port"
        ),
    })
}

type Slot = (Vec<OwnedFd>, serde_json::Value);

/// The place of a slot's bell among its descriptors.
const BELL_AT: usize = 1;

/// Descriptors of a slot: its memory, its bell, the port's bell, the pipe that keeps the process;
/// for slot 0 then everything that another process can be started with.
fn make_slots(port: &Port, options: Options, told: &PortDescription) -> std::io::Result<Vec<Slot>> {
    let wanted = options.queues;
    let mut options = Some(options);
    let mut slots = Vec::new();
    for ((rings, bell), slot) in port.slots.iter().zip(0u16..) {
        let port_bell = queue_of(slot, wanted);
        let rss = told.rss.clone().filter(|_| slot > 0);
        // A symmetric hash is one of a key here, and not of another input.
        let rss = rss.map(|PortRss { key, table }| RssParams {
            key,
            is_symmetric: false,
            table,
            queue: port_bell % told.queues.max(1),
        });
        let common = [
            rings.fd(),
            bell.as_fd(),
            port.bells[usize::from(port_bell)].as_fd(),
            port.life.as_fd(),
        ];
        let options = options.take();
        let all = match &options {
            Some(_) => port.fds(),
            None => Vec::new(),
        };
        let fds = common.iter().chain(&all).map(|fd| fd.try_clone_to_owned());
        let fds = fds.collect::<std::io::Result<_>>()?;
        slots.push((fds, own_value(&DpdkParams { options, rss })));
    }
    Ok(slots)
}
