//! The number of a link: a port of a device, or a VLAN of a port.

/// IEEE 802.1Q 9.6: a VLAN's number has so many bits.
const VLAN_BITS: u32 = 12;

/// A link of a device: a port's own, or one of its VLANs. Zero is the first port's own link, and a
/// number below 4096 is a VLAN of that port, so that a device with one port has VLANs alone for
/// links. A VLAN has its own number where no other link has it; one within a VLAN has a number that
/// is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u16);

impl LinkId {
    /// Ports that can be numbered.
    pub const PORTS_MAX: usize = 1 << (u16::BITS - VLAN_BITS);

    /// Largest number of a VLAN's link on its port (IEEE 802.1Q 9.6: 4095 is reserved).
    pub const VLAN_MAX: u16 = (1 << VLAN_BITS) - 2;

    /// A VLAN of a port; 0 = the port's own link. Bits that do not belong there are cut off.
    #[must_use]
    pub const fn new(port: u16, vlan: u16) -> Self {
        Self(port << VLAN_BITS | vlan & ((1 << VLAN_BITS) - 1))
    }

    /// The port, from 0 on.
    #[inline]
    #[must_use]
    pub const fn port(self) -> u16 {
        self.0 >> VLAN_BITS
    }

    /// Which VLAN of the port it is; 0 = the port's own link.
    #[inline]
    #[must_use]
    pub const fn vlan(self) -> u16 {
        self.0 & ((1 << VLAN_BITS) - 1)
    }

    /// The own link of the port that this link is of.
    #[must_use]
    pub const fn own(self) -> Self {
        Self::new(self.port(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_id_holds_a_port_and_a_vlan() {
        for (port, vlan, number) in [(0, 0, 0), (0, 4094, 4094), (1, 0, 4096), (15, 7, 61447)] {
            let link = LinkId::new(port, vlan);
            assert_eq!(link, LinkId(number));
            assert_eq!((link.port(), link.vlan()), (port, vlan));
            assert_eq!(link.own(), LinkId::new(port, 0));
        }
    }
}
