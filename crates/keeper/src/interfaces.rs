//! Interfaces of a device other than the first.

use std::net::IpAddr;

use slipstack_channel::control::net::{Change, Interface, Mode, NetworkState};
use slipstack_device::iface::{self, KernelInterface};
use slipstack_device::{DeviceError, LinkId, Slots};

use crate::device_state::DeviceState;
use crate::error::KeeperError;

/// A further interface of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceChoice {
    pub interface: String,
    /// The 802.1Q VLAN that its own link is in; 0 = what has no tag.
    pub vlan: u16,
    pub addresses: Vec<(IpAddr, u8)>,
}

impl InterfaceChoice {
    /// The interface that it becomes as the port of this number, from 1 on, without addresses.
    pub fn interface(&self, number: usize) -> Interface {
        Interface {
            name: self.interface.clone(),
            link: LinkId::new(number as u16, 0).0,
            ..Interface::default()
        }
    }

    /// Returns the changes that give the interface its addresses.
    pub fn changes(&self) -> Vec<Change> {
        let address = |address: &(IpAddr, u8)| Change::AddAddress {
            interface: self.interface.clone(),
            address: *address,
            mode: Mode::Add,
            is_certain: true,
        };
        self.addresses.iter().map(address).collect()
    }
}

/// Takes from an opened device what its interfaces are.
pub fn identify(slots: &Slots, state: &mut NetworkState) {
    let ports = state.interfaces.iter_mut().filter(|it| it.is_port());
    for (interface, (index, link)) in ports.zip(slots.ports()) {
        interface.index = index;
        interface.mac = link.mac;
        interface.mtu = link.mtu;
    }
}

/// Gives the ports their addresses, as far as they go together.
///
/// # Errors
/// An address that cannot be there.
pub fn add_addresses(
    ports: &[InterfaceChoice],
    state: &mut NetworkState,
) -> Result<(), KeeperError> {
    for port in ports {
        let next = state.changed(&port.changes());
        let next = next.map_err(|error| {
            let address = port
                .addresses
                .get(error.at)
                .map(|(ip, len)| format!("{ip}/{len}"));
            KeeperError::Port {
                interface: port.interface.clone(),
                address: address.unwrap_or_default(),
                why: error.to_string(),
            }
        })?;
        *state = NetworkState {
            revision: state.revision,
            ..next
        };
    }
    Ok(())
}

/// The ports of a network that do not pass frames, with what has become of them.
pub fn troubled(state: &NetworkState) -> impl Iterator<Item = (&Interface, DeviceState)> {
    let looked = state
        .ports()
        .map(|port| (port, DeviceState::of(look(port), port.index)));
    looked.filter(|(_, state)| *state != DeviceState::Usable)
}

/// Why frames do not pass, all of them or those of one port.
pub fn trouble(state: &NetworkState) -> Option<String> {
    let sentences = troubled(state).filter_map(|(port, state)| {
        let trouble = state.trouble()?;
        Some((port.name.clone(), trouble))
    });
    let sentences: Vec<(String, String)> = sentences.collect();
    let is_lone = state.ports().count() == 1;
    let told = sentences.into_iter().map(|(name, trouble)| match is_lone {
        true => trouble,
        false => format!("{name}: {trouble}"),
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn look(port: &Interface) -> Result<KernelInterface, DeviceError> {
    iface::link(&port.name)
}
