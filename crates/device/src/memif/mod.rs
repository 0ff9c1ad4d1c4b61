//! memif 2.0: frames by rings in memory that is shared with another program on this machine, such
//! as VPP, a DPDK application, or another stack of ours.
//!
//! Slot 0 holds the control connection ([`control`]) and makes the link; the other slots get the
//! descriptors from it and then use the same rings ([`slot`]), sharing a [`board`]. A peer may come
//! and go: frames that are sent without one are lost as on a link without a carrier.

mod board;
mod control;
mod guard;
mod message;
mod options;
mod ring;
mod slot;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};
use slipstack_mem::Region;

use crate::backend::{
    Backend, Capabilities, Description, DeviceKind, NO_INTERFACE, Opened, TagSupport,
};
use crate::device::Device;
use crate::error::DeviceError;
use crate::null::unlinked;
use crate::parts::{LinkProperties, SlotParts, own_value};
use crate::position::RingPosition;
use crate::steering::Steering;
use board::{Board, SLOTS_MAX};
use control::{Control, Neighbour, bell};
use guard::Guard;
use options::{Options, Role};
use slot::{MemifSlot, SlotSetup, Source};

/// The row of the table.
pub(crate) struct Memif;

/// The back end's own part of a slot's parameters.
#[derive(Debug, Serialize, Deserialize)]
struct MemifParams {
    slot: u16,
    slots: u16,
    /// Present in the keeper's slot alone.
    options: Option<Options>,
    /// The server's socket in the file system.
    file: Option<(u64, u64)>,
}

impl Backend for Memif {
    fn kind(&self) -> &'static DeviceKind {
        &DeviceKind {
            name: "memif",
            title: "memif",
            usage: "memif:SOCKET[,role=client|server][,id=N][,ring=FRAMES][,secret=TEXT]\
                [,mode=0600] (rings shared with VPP, a DPDK program or another stack)",
            takes_path: true,
            default_interface: Some("memif0"),
            // No neighbours: the peer may come hours later, so there is no station to probe for the
            // address.
            capabilities: Capabilities {
                has_vlans: true,
                tags: TagSupport::All,
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
        if usize::from(description.slots) > SLOTS_MAX {
            return Err(DeviceError::Unsuitable(format!(
                "a memif device has at most {} engines: give --slots a smaller number",
                SLOTS_MAX - 1
            )));
        }
        let listener = match options.role {
            Role::Server => Some(options.listen()?),
            Role::Client => {
                options.check_place()?;
                None
            }
        };
        let role = match options.role {
            Role::Server => "server",
            Role::Client => "client",
        };
        let mac = mac_of(&options);
        let mode = format!("{},role={role},id={}", options.socket, options.id);
        let slots = make_slots(description.slots, options, listener, steering);
        Ok(Opened {
            index: NO_INTERFACE,
            name: description.interface.to_owned(),
            link: LinkProperties {
                // Checksums are completed here for a peer that does not take partial ones.
                tx_checksum: true,
                tso_max: 0,
                udp_segmentation: false,
                ..unlinked(mac)
            },
            slots: slots?,
            held: Vec::new(),
            needs_ingress_drop: false,
            mode: Some(mode),
            delivery: None,
        })
    }

    fn clean_up(&self, own: &serde_json::Value) {
        let params = MemifParams::deserialize(own);
        if let Ok(MemifParams {
            options: Some(options),
            file: Some(file),
            ..
        }) = params
        {
            options.unlink(file);
        }
    }

    fn waits_at(&self, _own: &serde_json::Value) -> Vec<usize> {
        vec![BELL_AT]
    }

    fn adopt(
        &self,
        parts: SlotParts,
        _position: RingPosition,
    ) -> Result<Box<dyn Device>, DeviceError> {
        let params: MemifParams = parts.params.own()?;
        let few = || DeviceError::BadParameters("a slot has too few descriptors");
        let mut fds = parts.fds.into_iter();
        let mut next = || fds.next().ok_or_else(few);
        let steering = Steering::from_fds([next()?, next()?])?;
        let board = Region::open(next()?, usize::MAX).map_err(system)?;
        let board = Board::new(board, params.slot)?;
        let (bell, keeper_bell) = (next()?.into(), next()?.into());
        let source = match params.options {
            None => Source::Asked {
                pair: next()?.into(),
                asked_for: 0,
            },
            Some(options) => {
                let listener = match options.role {
                    Role::Server => Some(next()?),
                    Role::Client => None,
                };
                let mut neighbours = Vec::new();
                for _ in 1..params.slots {
                    let (pair, bell) = (next()?.into(), next()?.into());
                    neighbours.push(Neighbour { pair, bell });
                }
                board.set_generation(0);
                board.set_guarded(false);
                let control = Control::new(options, listener, neighbours).map_err(system)?;
                Source::Control(Box::new(control), Guard::new().map_err(system)?)
            }
        };
        let slot = MemifSlot::new(SlotSetup {
            info: parts.params.link.info(),
            vlan: parts.params.link.vlan,
            slot: params.slot,
            board,
            steering,
            bell,
            keeper_bell,
            source,
        })?;
        Ok(Box::new(slot))
    }
}

fn system(source: io::Error) -> DeviceError {
    DeviceError::System {
        doing: "making the slots of a memif device",
        source,
    }
}

type Slot = (Vec<OwnedFd>, serde_json::Value);

/// The place of a slot's bell among its descriptors.
const BELL_AT: usize = 3;

/// Descriptors of a slot: the steering's two, the board, its bell, slot 0's bell; then its way to
/// slot 0, or for slot 0 the listener, if any, and way and bell of each of the others.
fn make_slots(
    count: u16,
    options: Options,
    listener: Option<OwnedFd>,
    steering: &Steering,
) -> Result<Vec<Slot>, DeviceError> {
    let tables = steering.read_only_fds()?;
    let board = Board::create(count).map_err(system)?;
    let keeper_bell = bell().map_err(system)?;
    let copy = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned().map_err(system);
    let common = |bell: &OwnedFd| -> Result<Vec<OwnedFd>, DeviceError> {
        let board = board.fd();
        [
            &tables[0] as &dyn AsFd,
            &tables[1],
            &board,
            bell,
            &keeper_bell,
        ]
        .into_iter()
        .map(copy)
        .collect()
    };
    let file = listener.as_ref().and_then(|_| options.file());
    let params = |slot, options: Option<Options>| {
        own_value(&MemifParams {
            slot,
            slots: count,
            file: file.filter(|_| options.is_some()),
            options,
        })
    };
    let mut first = common(&keeper_bell)?;
    first.extend(listener);
    let mut others = Vec::new();
    for slot in 1..count {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let ends = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (near, far) = ends.map_err(|errno| system(errno.into()))?;
        let bell = bell().map_err(system)?;
        let mut fds = common(&bell)?;
        fds.push(far);
        first.extend([near, bell]);
        others.push((fds, params(slot, None)));
    }
    let mut slots = vec![(first, params(0, Some(options)))];
    slots.extend(others);
    Ok(slots)
}

/// An address of ours on the link, local and of one station: the same after a restart, so that
/// peers that remember it are right, and another for each end, socket, number and container.
fn mac_of(options: &Options) -> [u8; 6] {
    let host = rustix::system::uname();
    let network = rustix::fs::stat("/proc/self/ns/net").map_or(0, |it| it.st_ino);
    let role = options.role == Role::Server;
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let words = [u64::from(role), u64::from(options.id), network].map(u64::to_ne_bytes);
    let texts = [options.socket.as_bytes(), host.nodename().to_bytes()];
    for byte in words.iter().flatten().chain(texts.into_iter().flatten()) {
        // FNV-1a.
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    }
    let [a, b, c, d, e, ..] = hash.to_be_bytes();
    [0x02, a, b, c, d, e]
}
