//! The network that the settings describe, compared with that of a running stack.

use slipstack_channel::control::Refusal;
use slipstack_channel::control::net::{Interface, KernelShare, NetworkState, RouteEntry};
use slipstack_config::Settings;

use crate::door::options;
use crate::error::Error;

/// Returns the network that a running stack would have if it had been started with these settings.
/// If they name no address of the device itself, it keeps those that it has.
///
/// # Errors
/// An invalid VLAN, or a different sharing of addresses with the kernel, which is fixed at the
/// start.
pub fn planned(settings: &Settings, now: &NetworkState) -> Result<NetworkState, Error> {
    let wanted = options(settings).network.numbered_as(now);
    let refused = |message: String| Error::Refused {
        refusal: Refusal::Unknown,
        message,
    };
    let method = |share: &Option<_>| share.as_ref().map(|it: &KernelShare| it.listed);
    if method(&wanted.share) != method(&now.share) {
        return Err(refused(
            "--kni holds from the start on; end the programs to change it".to_owned(),
        ));
    }
    let is_first = |it: &&Interface| settings.interface.as_ref() == Some(&it.name);
    let mut own = now.ports().find(is_first).unwrap_or(now.own()).clone();
    if !wanted.own().addresses.is_empty() {
        own.addresses.clone_from(&wanted.own().addresses);
    }
    let mut interfaces = vec![own];
    for asked in wanted.ports().skip(1) {
        let port = now.ports().find(|it| it.name == asked.name);
        let mut port = port.cloned().ok_or_else(|| {
            refused(format!(
                "--if {}: a stack has the interfaces that it was started with; end the programs to \
                 change them",
                asked.name
            ))
        })?;
        if !asked.addresses.is_empty() {
            port.addresses.clone_from(&asked.addresses);
        }
        interfaces.push(port);
    }
    // Interfaces that are not named stay as they are.
    let is_named = |it: &Interface| interfaces.iter().any(|known| known.name == it.name);
    let rest: Vec<Interface> = now.ports().filter(|it| !is_named(it)).cloned().collect();
    interfaces.extend(rest);
    interfaces.sort_by_key(|it| it.link);
    let mut rules = wanted.rules.clone();
    rules.sort_by_key(|rule| rule.priority);
    let mut planned = NetworkState {
        interfaces,
        routes: wanted.routes.iter().map(RouteEntry::normalized).collect(),
        rules,
        is_forwarding: wanted.is_forwarding,
        connects_all_tables: wanted.connects_all_tables,
        share: wanted.share.clone(),
        ..now.clone()
    };
    for vlan in wanted.interfaces.iter().filter(|it| !it.is_port()) {
        let with = planned.changed(&vlan.changes_from_port());
        let id = vlan.tag.id;
        planned = with.map_err(|error| refused(format!("VLAN {id}: {error}")))?;
    }
    Ok(planned)
}
