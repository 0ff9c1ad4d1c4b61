//! The slots of several interfaces, combined for the keeper and separated again by the engine that
//! adopts them.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use slipstack_wire::RxMeta;

use super::slot::{JoinedSlot, admit};
use crate::backend::{Backend, Capabilities, Description, DeviceKind, Opened, TagSupport};
use crate::device::{Device, Takes};
use crate::error::DeviceError;
use crate::kinds::find;
use crate::parts::{LinkProperties, SlotParams, SlotParts, own_value};
use crate::position::RingPosition;
use crate::steering::Steering;

/// Represents devices of several ports. It is in no table, because it has no name to be selected
/// by.
pub(crate) struct Joined;

/// A slot of one port.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JoinedPart {
    /// Name of the port's own back end.
    pub(crate) backend: String,
    pub(crate) link: LinkProperties,
    pub(crate) own: serde_json::Value,
    /// Number of the descriptors that are its.
    pub(crate) fds: usize,
}

/// Returns the parameters of a slot that is made of these, and the properties of its link: the
/// capabilities common to all ports, with the addresses of the first.
pub(crate) fn join(parts: &[JoinedPart]) -> Option<(LinkProperties, serde_json::Value)> {
    let first = parts.first()?.link;
    let links = || parts.iter().map(|part| part.link);
    let link = LinkProperties {
        tx_checksum: links().all(|it| it.tx_checksum),
        tso_max: links().map(|it| it.tso_max).min().unwrap_or(0),
        udp_segmentation: links().all(|it| it.udp_segmentation),
        ..first
    };
    Some((link, own_value(&parts)))
}

/// The slots of all ports.
fn split(parts: SlotParts) -> Result<Vec<SlotParts>, DeviceError> {
    let ports: Vec<JoinedPart> = parts.params.own()?;
    let mut fds = parts.fds.into_iter();
    let mut split = Vec::new();
    for port in ports {
        let fds: Vec<OwnedFd> = fds.by_ref().take(port.fds).collect();
        let params = SlotParams {
            backend: port.backend,
            link: port.link,
            own: port.own,
        };
        split.push(SlotParts { params, fds });
    }
    match fds.next() {
        None => Ok(split),
        Some(_) => Err(DeviceError::BadParameters(
            "a slot has more descriptors than its ports",
        )),
    }
}

fn position_of(position: &RingPosition, port: usize) -> Result<RingPosition, DeviceError> {
    let outside = DeviceError::BadParameters("a slot has more ports than positions");
    position.beside(port).ok_or(outside)
}

impl Backend for Joined {
    fn kind(&self) -> &'static DeviceKind {
        &DeviceKind {
            name: "joined",
            title: "interfaces",
            usage: "",
            takes_path: false,
            default_interface: None,
            // The capabilities of its ports are used instead.
            capabilities: Capabilities {
                has_interface: true,
                has_neighbours: true,
                is_heard: true,
                has_vlans: true,
                tags: TagSupport::All,
                ..Capabilities::NONE
            },
        }
    }

    fn open(
        &self,
        _description: &Description<'_>,
        _steering: &Steering,
    ) -> Result<Opened, DeviceError> {
        Err(DeviceError::BadParameters(
            "several interfaces are opened one by one",
        ))
    }

    fn waits_at(&self, own: &serde_json::Value) -> Vec<usize> {
        let (mut from, mut places) = (0, Vec::new());
        for port in Vec::<JoinedPart>::deserialize(own).unwrap_or_default() {
            if let Ok((backend, _)) = find(&port.backend) {
                let own = backend.waits_at(&port.own).into_iter();
                places.extend(own.filter(|at| *at < port.fds).map(|at| from + at));
            }
            from += port.fds;
        }
        places
    }

    fn adopt(
        &self,
        parts: SlotParts,
        position: RingPosition,
    ) -> Result<Box<dyn Device>, DeviceError> {
        let link = parts.params.link;
        let mut ports = Vec::new();
        for (at, part) in split(parts)?.into_iter().enumerate() {
            let (backend, _) = find(&part.params.backend)?;
            ports.push(backend.adopt(part, position_of(&position, at)?)?);
        }
        let slot = JoinedSlot::new(ports, link.info())
            .map_err(|source| DeviceError::system("waiting for several ports", "", source))?;
        Ok(Box::new(slot))
    }

    fn peek(
        &self,
        parts: SlotParts,
        position: RingPosition,
        takes: &mut Takes<'_>,
    ) -> Result<bool, DeviceError> {
        let mut is_taken = false;
        for (at, part) in split(parts)?.into_iter().enumerate() {
            let (backend, _) = find(&part.params.backend)?;
            let mac = part.params.link.mac;
            let mut takes = |frame: &[u8], meta: RxMeta| {
                admit(at as u16, mac, frame, meta).is_some_and(|meta| takes(frame, meta))
            };
            is_taken |= backend.peek(part, position_of(&position, at)?, &mut takes)?;
        }
        Ok(is_taken)
    }
}
