//! The parts of a slot, as the keeper passes them to the engine that adopts it.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::backend::PortSettings;
use crate::device::DeviceInfo;
use crate::error::DeviceError;

/// Largest TCP payload of a frame that the kernel segments for us: 64 KiB with all headers.
pub(crate) const TSO_MAX: u32 = 65_535 - 20 - 60;
/// IEEE 802.1Q 9.6: 4095 is reserved.
pub(crate) const VLAN_MAX: u16 = 4094;

/// Properties of an engine's link, for any back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkProperties {
    /// The interface's number in the kernel; 0 until it is known.
    pub index: u32,
    /// Address of the stack on the link.
    pub mac: [u8; 6],
    /// Largest IP packet.
    pub mtu: u16,
    /// The device completes partial transport checksums.
    pub tx_checksum: bool,
    /// Largest TCP payload of one frame that the device cuts into segments; 0 = it does not.
    pub tso_max: u32,
    /// The device segments joined datagrams.
    pub udp_segmentation: bool,
    /// Number of the VLAN that the stack is in; 0 = frames without a tag.
    pub vlan: u16,
}

impl LinkProperties {
    /// Leaves out the offloads that are not to be used.
    pub(crate) fn limit(&mut self, settings: PortSettings) {
        if settings.has_no_segmentation || settings.has_no_checksum {
            self.tso_max = 0;
            self.udp_segmentation = false;
        }
        self.tx_checksum &= !settings.has_no_checksum;
    }

    pub(crate) fn info(&self) -> DeviceInfo {
        DeviceInfo {
            mac: self.mac,
            mtu: self.mtu,
            tx_checksum: self.tx_checksum,
            tso_max: self.tso_max,
            udp_segmentation: self.udp_segmentation,
        }
    }
}

/// Parameters of a slot beside its descriptors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlotParams {
    /// Name of the back end.
    pub backend: String,
    pub link: LinkProperties,
    /// Typed in the back end alone.
    pub(crate) own: serde_json::Value,
}

impl SlotParams {
    /// For a message.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// `None` for text that [`SlotParams::to_text`] does not make.
    pub fn from_text(text: &str) -> Option<SlotParams> {
        let params: SlotParams = serde_json::from_str(text).ok()?;
        (params.link.vlan <= VLAN_MAX).then_some(params)
    }

    /// The back end's own part.
    pub(crate) fn own<T: for<'a> Deserialize<'a>>(&self) -> Result<T, DeviceError> {
        T::deserialize(&self.own)
            .map_err(|_| DeviceError::BadParameters("these are of no slot of this kind"))
    }
}

/// A back end's own part as it travels.
pub(crate) fn own_value<T: Serialize>(own: &T) -> serde_json::Value {
    serde_json::to_value(own).unwrap_or_default()
}

/// The parts of a slot for its adopter.
#[derive(Debug)]
pub struct SlotParts {
    pub params: SlotParams,
    /// In the back end's order.
    pub fds: Vec<OwnedFd>,
}

impl SlotParts {
    /// The descriptors, if there are so many.
    pub(crate) fn descriptors<const N: usize>(
        fds: Vec<OwnedFd>,
    ) -> Result<[OwnedFd; N], DeviceError> {
        fds.try_into()
            .map_err(|_| DeviceError::BadParameters("a slot has another number of descriptors"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segmentation_offload_is_off_if_disabled_or_without_checksum_offload() {
        let with = |has_no_segmentation, has_no_checksum| {
            let mut link = LinkProperties {
                index: 0,
                mac: [2, 3, 4, 5, 6, 7],
                mtu: 1500,
                tx_checksum: true,
                tso_max: TSO_MAX,
                udp_segmentation: true,
                vlan: 0,
            };
            link.limit(PortSettings {
                has_no_segmentation,
                has_no_checksum,
                is_promiscuous: false,
            });
            (link.tso_max, link.udp_segmentation, link.tx_checksum)
        };
        assert_eq!(with(false, false), (TSO_MAX, true, true));
        assert_eq!(with(true, false), (0, false, true));
        assert_eq!(with(false, true), (0, false, false));
    }

    #[test]
    fn parameters_round_trip_and_invalid_bytes_are_refused() {
        let params = SlotParams {
            backend: "packet".to_owned(),
            link: LinkProperties {
                index: 0,
                mac: [2, 3, 4, 5, 6, 7],
                mtu: 1500,
                tx_checksum: true,
                tso_max: TSO_MAX,
                udp_segmentation: true,
                vlan: 7,
            },
            own: serde_json::json!({"frames": 2048}),
        };
        let text = params.to_text();
        assert_eq!(SlotParams::from_text(&text), Some(params));
        for (from, to) in [
            ("\"vlan\":7", "\"vlan\":4095"),
            ("\"mtu\":1500", "\"mtu\":65536"),
            ("}", ""),
        ] {
            assert_eq!(
                SlotParams::from_text(&text.replacen(from, to, 1)),
                None,
                "{to}"
            );
        }
    }
}
