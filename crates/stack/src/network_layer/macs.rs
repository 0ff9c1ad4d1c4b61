//! Our link-layer addresses: one for each port of the device.

use alloc::vec::Vec;

use slipstack_wire::LinkId;

/// See the [module documentation](self).
#[derive(Clone, Debug)]
pub(crate) struct Macs {
    /// Address of the first port, which most devices have alone.
    pub(crate) first: [u8; 6],
    others: Vec<[u8; 6]>,
}

impl Macs {
    pub(crate) const fn new(first: [u8; 6]) -> Macs {
        Macs {
            first,
            others: Vec::new(),
        }
    }

    /// Sets the addresses of the ports after the first.
    pub(crate) fn set_others(&mut self, others: &[[u8; 6]]) {
        self.others = others.to_vec();
    }

    /// The one on a link ([`LinkId`]).
    #[inline]
    pub(crate) fn on(&self, link: u16) -> [u8; 6] {
        match LinkId(link).port() {
            0 => self.first,
            port => self.of_port(port),
        }
    }

    #[cold]
    fn of_port(&self, port: u16) -> [u8; 6] {
        let mac = self.others.get(usize::from(port) - 1);
        mac.copied().unwrap_or(self.first)
    }

    /// Returns whether one of them is `mac`. A device with several ports delivers only frames for
    /// their own port.
    #[inline]
    pub(crate) fn has(&self, mac: [u8; 6]) -> bool {
        mac == self.first || self.is_another(mac)
    }

    #[cold]
    fn is_another(&self, mac: [u8; 6]) -> bool {
        self.others.contains(&mac)
    }
}
