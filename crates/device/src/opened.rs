//! One interface of a device, as its keeper has opened it.

use std::os::fd::OwnedFd;

use crate::backend::{Backend, Description, PortSettings};
use crate::error::DeviceError;
use crate::ingress::IngressDrop;
use crate::packet;
use crate::parts::{LinkProperties, VLAN_MAX};
use crate::steering::Steering;

/// An opened interface with its part of every slot.
pub(crate) struct OpenedPort {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) link: LinkProperties,
    pub(crate) drop: Option<IngressDrop>,
    needs_ingress_drop: bool,
    /// Descriptors and own parameters of each slot, by its number.
    pub(crate) slots: Vec<(Vec<OwnedFd>, serde_json::Value)>,
    pub(crate) held: Vec<OwnedFd>,
    pub(crate) mode: Option<String>,
    pub(crate) delivery: Option<String>,
    again: Again,
}

/// The part of a description that an opened interface does not tell.
#[derive(Clone)]
struct Again {
    argument: Option<String>,
    settings: PortSettings,
}

impl OpenedPort {
    /// Opens one interface as it is described.
    pub(crate) fn open(
        backend: &'static dyn Backend,
        description: &Description<'_>,
        steering: &Steering,
    ) -> Result<OpenedPort, DeviceError> {
        let mut opened = backend.open(description, steering)?;
        opened.link.index = opened.index;
        opened.link.vlan = description.vlan.min(VLAN_MAX);
        opened.link.limit(description.settings);
        if description.settings.is_promiscuous {
            let heard = packet::hear_all(opened.index);
            let failed = |source| {
                DeviceError::system("making the interface promiscuous", "CAP_NET_RAW", source)
            };
            opened.held.push(heard.map_err(failed)?);
        }
        Ok(OpenedPort {
            name: opened.name,
            index: opened.index,
            link: opened.link,
            drop: None,
            needs_ingress_drop: opened.needs_ingress_drop,
            slots: opened.slots,
            held: opened.held,
            mode: opened.mode,
            delivery: opened.delivery,
            again: Again {
                argument: description.argument.map(str::to_owned),
                settings: description.settings,
            },
        })
    }

    /// Opens the interface that has its name now.
    pub(crate) fn again(
        &self,
        backend: &'static dyn Backend,
        slots: u16,
        steering: &Steering,
    ) -> Result<OpenedPort, DeviceError> {
        let description = Description {
            interface: &self.name,
            argument: self.again.argument.as_deref(),
            slots,
            vlan: self.link.vlan,
            settings: self.again.settings,
        };
        OpenedPort::open(backend, &description, steering)
    }

    /// Returns whether frames for the stack are still to be kept from the kernel.
    pub(crate) fn wants_drop(&self) -> bool {
        self.needs_ingress_drop && self.drop.is_none()
    }
}
