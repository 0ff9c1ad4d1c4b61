//! The network that settings describe, of a stack that runs.

use slipstack_channel::control::Refusal;
use slipstack_channel::control::net::{KernelShare, NetworkState, RouteEntry};
use slipstack_config::Settings;
use slipstack_keeper::Options;

use crate::door::options;
use crate::error::Error;

/// Returns the network of a running stack as it would be, had it been started with these settings. Where they name no
/// address of the device itself, it keeps those that it has.
///
/// # Errors
/// A VLAN cannot be as they say, or they share addresses with the kernel in another way, which is settled at the start.
pub fn planned(settings: &Settings, now: &NetworkState) -> Result<NetworkState, Error> {
    let Options {
        addresses,
        vlans,
        routes,
        mut rules,
        is_forwarding,
        share,
        ..
    } = options(settings);
    let refused = |message: String| Error::Refused {
        refusal: Refusal::Unknown,
        message,
    };
    let method = |share: &Option<_>| share.as_ref().map(|it: &KernelShare| it.listed);
    if method(&share) != method(&now.share) {
        return Err(refused(
            "--kni holds from the start on; end the programs to change it".to_owned(),
        ));
    }
    let mut own = now.own().clone();
    if !addresses.is_empty() {
        own.addresses = addresses;
    }
    rules.sort_by_key(|rule| rule.priority);
    let device = own.name.clone();
    let mut planned = NetworkState {
        interfaces: vec![own],
        routes: routes.iter().map(RouteEntry::normalized).collect(),
        rules,
        is_forwarding,
        share,
        ..now.clone()
    };
    for vlan in vlans {
        let with = planned.changed(&vlan.changes(&device));
        planned = with.map_err(|error| refused(format!("VLAN {}: {error}", vlan.vlan)))?;
    }
    Ok(planned)
}
