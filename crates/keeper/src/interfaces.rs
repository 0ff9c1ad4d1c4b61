//! Interfaces of a device other than the first.

use slipstack_channel::control::net::{Change, ChangeError, Interface, NetworkState};
use slipstack_device::iface::{self, KernelInterface};
use slipstack_device::{Capabilities, DeviceError, Slots, TagSupport};

use crate::device_state::DeviceState;
use crate::error::KeeperError;

/// Copies the properties of the interfaces from an opened device.
pub fn identify(slots: &Slots, state: &mut NetworkState) {
    let ports = state.interfaces.iter_mut().filter(|it| it.is_port());
    for (interface, (index, link)) in ports.zip(slots.ports()) {
        interface.index = index;
        interface.mac = link.mac;
        interface.mtu = link.mtu;
    }
}

/// Gives the opened ports the addresses and VLANs that are wanted, as far as they go together. The
/// first port has its addresses already.
///
/// # Errors
/// An address or a VLAN that cannot be there.
pub fn add_wanted(
    wanted: &NetworkState,
    capabilities: Capabilities,
    state: &mut NetworkState,
) -> Result<(), KeeperError> {
    for interface in wanted.interfaces.iter().skip(1) {
        let changes = interface.changes_from_port();
        if let Some(why) = changes.iter().find_map(|it| untaggable(it, capabilities)) {
            return Err(KeeperError::Vlan {
                vlan: interface.tag.id,
                why: why.to_owned(),
            });
        }
        let next = state.changed(&changes);
        let next = next.map_err(|error| refused(interface, changes.get(error.at), error))?;
        *state = NetworkState {
            revision: state.revision,
            ..next
        };
    }
    Ok(())
}

/// Returns why a device cannot have a VLAN that is to be added.
pub fn untaggable(change: &Change, capabilities: Capabilities) -> Option<&'static str> {
    let Change::AddVlan {
        is_provider,
        within,
        ..
    } = change
    else {
        return None;
    };
    let is_plain = !is_provider && within.is_none();
    match capabilities.tags {
        TagSupport::All => None,
        TagSupport::Single if is_plain => None,
        TagSupport::Single => {
            Some("Operation not supported: this kind of device has one 802.1Q tag in a frame")
        }
        TagSupport::None => Some(
            "Operation not supported: this kind of device has no VLANs; --device packet has them",
        ),
    }
}

fn refused(interface: &Interface, change: Option<&Change>, error: ChangeError) -> KeeperError {
    let why = error.to_string();
    if !interface.is_port() {
        let vlan = interface.tag.id;
        return KeeperError::Vlan { vlan, why };
    }
    let address = match change {
        Some(Change::AddAddress { address, .. }) => format!("{}/{}", address.0, address.1),
        _ => String::new(),
    };
    KeeperError::Port {
        interface: interface.name.clone(),
        address,
        why,
    }
}

/// The ports of a network that do not pass frames, with what has become of them.
pub fn troubled(state: &NetworkState) -> impl Iterator<Item = (&Interface, DeviceState)> {
    let looked = state
        .ports()
        .map(|port| (port, DeviceState::of(look(port), port.index)));
    looked.filter(|(_, state)| *state != DeviceState::Usable)
}

/// Reason why frames do not pass, all of them or those of one port. `is_own`: the keeper has made
/// the interface.
pub fn trouble<'a>(
    troubled: impl Iterator<Item = (&'a Interface, DeviceState)>,
    is_lone: bool,
    is_own: bool,
) -> Option<String> {
    let sentences = troubled.filter_map(|(port, state)| {
        let trouble = state.trouble(is_own)?;
        Some((port.name.clone(), trouble))
    });
    let sentences: Vec<(String, String)> = sentences.collect();
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
