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

use crate::backend::{Backend, Capabilities, Description, DeviceKind, NO_INTERFACE, Opened};
use crate::device::Device;
use crate::error::DeviceError;
use crate::parts::{LinkProperties, SlotParts, TSO_MAX, own_value};
use crate::position::RingPosition;
use crate::steering::Steering;
use process::{Port, system};
use slot::{DpdkSlot, SlotSetup};
use watch::Watch;

pub use crate::partial::is_partial;
pub use options::Options;
pub use rings::{CELLS, DATA_MAX, FRAME_MAX, Malformed, Reader, Rings, Tag, Waiting, Way, Writer};
pub use setup::{Answer, Order, PortDescription, Setup};

/// The row of the table.
pub(crate) struct Dpdk;

/// The back end's own part of a slot's parameters.
#[derive(Debug, Serialize, Deserialize)]
struct DpdkParams {
    /// The keeper's slot alone has them.
    options: Option<Options>,
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
        let port = Port::new(steering.read_only_fds()?, description.slots).map_err(system)?;
        let order = Order { options, mac: None };
        let told = match port.start(&order)?.wait() {
            Answer::Ready(told) => told,
            Answer::Failed(sentence) => return Err(DeviceError::Unsuitable(sentence)),
        };
        Ok(Opened {
            index: NO_INTERFACE,
            name: description.interface.to_owned(),
            link: LinkProperties {
                mac: told.mac,
                mtu: told.mtu,
                tx_checksum: told.has_checksum,
                tso_max: if told.has_tso { TSO_MAX } else { 0 },
                udp_segmentation: false,
                vlan: 0,
            },
            slots: make_slots(&port, order.options).map_err(system)?,
            held: Vec::new(),
            needs_ingress_drop: false,
            mode: Some(told.mode),
            delivery: None,
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
        let life = next()?;
        let watch = match params.options {
            None => None,
            Some(options) => {
                let order = Order {
                    options,
                    mac: Some(link.mac),
                };
                let port = Port::from_fds(fds.collect()).map_err(system)?;
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
        });
        Ok(Box::new(slot.map_err(system)?))
    }
}

type Slot = (Vec<OwnedFd>, serde_json::Value);

/// The place of a slot's bell among its descriptors.
const BELL_AT: usize = 1;

/// Descriptors of a slot: its memory, its bell, the port's bell, the pipe that keeps the process;
/// for slot 0 then everything that another process can be started with.
fn make_slots(port: &Port, options: Options) -> std::io::Result<Vec<Slot>> {
    let mut options = Some(options);
    let mut slots = Vec::new();
    for (rings, bell) in &port.slots {
        let common = [
            rings.fd(),
            bell.as_fd(),
            port.bell.as_fd(),
            port.life.as_fd(),
        ];
        let options = options.take();
        let all = match &options {
            Some(_) => port.fds(),
            None => Vec::new(),
        };
        let fds = common.iter().chain(&all).map(|fd| fd.try_clone_to_owned());
        let fds = fds.collect::<std::io::Result<_>>()?;
        slots.push((fds, own_value(&DpdkParams { options })));
    }
    Ok(slots)
}
