//! The trait that each kind of device implements.
//!
//! A back end opens a whole device for the keeper ([`Backend::open`]) and adopts one slot of it for
//! an engine ([`Backend::adopt`]). Between the two a slot is passed as [`SlotParts`]: descriptors,
//! and parameters that only the back end itself interprets.

use std::os::fd::OwnedFd;

use crate::device::{Device, Takes};
use crate::error::DeviceError;
use crate::parts::{LinkProperties, SlotParts};
use crate::position::RingPosition;
use crate::steering::Steering;

/// Properties by which kinds of devices differ for their users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// An interface of the kernel's is behind it: it has a number, goes up and down, and can be
    /// listened to.
    pub has_interface: bool,
    /// Opening makes the interface, which goes with the keeper.
    pub makes_interface: bool,
    /// Other stations are on the link: they may have our address, and routers may be solicited.
    pub has_neighbours: bool,
    /// Whether packet sockets receive all its frames.
    pub is_heard: bool,
    /// The interface can be in a VLAN by tags of ours.
    pub has_vlans: bool,
    /// Tags of frames of VLANs beside the interface's own link.
    pub tags: TagSupport,
}

/// The tags that a kind of device puts into frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagSupport {
    None,
    /// One 802.1Q tag.
    Single,
    /// Tags of 802.1Q and 802.1ad, and two of them: a VLAN within a VLAN.
    All,
}

impl Capabilities {
    pub const NONE: Capabilities = Capabilities {
        has_interface: false,
        makes_interface: false,
        has_neighbours: false,
        is_heard: false,
        has_vlans: false,
        tags: TagSupport::None,
    };

    /// An interface that was there before is taken, beside the kernel.
    pub const fn takes_interface(&self) -> bool {
        self.has_interface && !self.makes_interface
    }
}

/// The description of a kind of device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceKind {
    /// As `--device` has it.
    pub name: &'static str,
    /// The word before the name of a device of this kind: "interface".
    pub title: &'static str,
    /// Part of the help text of `--device`: name and argument, and in brackets a description.
    pub usage: &'static str,
    /// The argument begins with a path.
    pub takes_path: bool,
    /// Name of the device when no interface is named.
    pub default_interface: Option<&'static str>,
    pub capabilities: Capabilities,
}

/// The device that a keeper wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct Description<'a> {
    /// Name of the interface; of a device without one, the name it is known by.
    pub interface: &'a str,
    /// The text after the kind's name and a colon.
    pub argument: Option<&'a str>,
    pub slots: u16,
    /// 802.1Q VLAN; 0 = frames without a tag.
    pub vlan: u16,
    pub settings: PortSettings,
}

/// An operator's settings of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSettings {
    /// The stack cuts segments and datagrams itself.
    pub has_no_segmentation: bool,
    /// The stack computes checksums itself, and so cuts segments too.
    pub has_no_checksum: bool,
    /// The interface hears frames to all stations for as long as the stack has it.
    pub is_promiscuous: bool,
}

/// An opened device.
#[derive(Debug)]
pub struct Opened {
    /// The interface's number in the kernel; of a device without one [`NO_INTERFACE`].
    pub index: u32,
    pub name: String,
    pub link: LinkProperties,
    /// In the order of the slots' numbers: descriptors and the back end's own parameters.
    pub slots: Vec<(Vec<OwnedFd>, serde_json::Value)>,
    /// Links and programs that hold the device as it is.
    pub held: Vec<OwnedFd>,
    /// Whether the kernel beside us receives the same frames
    /// ([`crate::Slots::install_ingress_drop`]).
    pub needs_ingress_drop: bool,
    /// Way in which the device was opened, if there are several; for display.
    pub mode: Option<String>,
    /// Way in which received flows come to queues, if it has several; for display.
    pub delivery: Option<String>,
}

/// Stands for the number of an interface where the kernel has none. It has no interface of so high
/// a number unless a million have been made since the machine started.
pub const NO_INTERFACE: u32 = 1 << 24;

/// One kind of device.
pub trait Backend: Sync {
    fn kind(&self) -> &'static DeviceKind;

    fn name(&self) -> &'static str {
        self.kind().name
    }

    fn capabilities(&self) -> Capabilities {
        self.kind().capabilities
    }

    /// Opens all slots. `steering` decides which of them a frame goes to, as far as the back end
    /// can consult it. On failure nothing is left behind.
    ///
    /// # Errors
    /// One sentence.
    fn open(
        &self,
        description: &Description<'_>,
        steering: &Steering,
    ) -> Result<Opened, DeviceError>;

    /// Removes the device's files when it ends. `own`: the own parameters of slot 0.
    fn clean_up(&self, own: &serde_json::Value) {
        let _ = own;
    }

    /// Returns whether the interface behind these descriptors of a slot, which the back end made,
    /// has been deleted.
    fn has_lost_interface(&self, fds: &[OwnedFd]) -> bool {
        let _ = fds;
        false
    }

    /// Which of a slot's descriptors are readable while frames wait in it. `own`: the slot's own
    /// parameters.
    fn waits_at(&self, own: &serde_json::Value) -> Vec<usize> {
        let _ = own;
        vec![0]
    }

    /// Adopts a slot where its last holder stopped. Needs no privilege.
    ///
    /// # Errors
    /// The parts do not fit together, or the kernel refuses a mapping.
    fn adopt(
        &self,
        parts: SlotParts,
        position: RingPosition,
    ) -> Result<Box<dyn Device>, DeviceError>;

    /// Shows the frames that wait in a slot whose holder does not run at the moment. One for which
    /// `takes` returns true is not the holder's any more. Returns whether all were taken out of the
    /// slot, because there is no other way to see them.
    ///
    /// # Errors
    /// As for [`Backend::adopt`].
    fn peek(
        &self,
        parts: SlotParts,
        position: RingPosition,
        takes: &mut Takes<'_>,
    ) -> Result<bool, DeviceError> {
        let _ = (parts, position, takes);
        Ok(false)
    }
}
