//! VLANs that a program brings to a stack which runs already: two programs may use two VLANs of one
//! port, whichever of them is started first.

use slipstack_channel::control::Refusal;
use slipstack_channel::control::Welcome;
use slipstack_channel::control::net::{Change, Client, Interface, Mode, NetworkState, Query};
use slipstack_config::Settings;

use crate::door::options;
use crate::error::Error;

/// Returns the changes that give a stack the VLANs of these settings which it does not have, each
/// with its addresses, routes and rules.
fn changes(settings: &Settings, now: &NetworkState) -> Vec<Change> {
    let wanted = options(settings).network.numbered_as(now);
    // Further ports have numbers of their own in each description.
    if settings.interface.as_ref() != Some(&now.own().name) || wanted.ports().count() > 1 {
        return Vec::new();
    }
    let is_new = |it: &&Interface| !it.is_port() && now.find_link(it.link).is_none();
    let new: Vec<&Interface> = wanted.interfaces.iter().filter(is_new).collect();
    let mut changes: Vec<Change> = new.iter().flat_map(|it| it.changes_from_port()).collect();
    for change in &mut changes {
        if let Change::AddAddress { is_certain, .. } = change {
            // Another station may have it.
            *is_certain = false;
        }
    }
    let is_by_new =
        |link: Option<u16>| link.is_some_and(|link| new.iter().any(|it| it.link == link));
    let routes = wanted
        .routes
        .iter()
        .filter(|route| is_by_new(wanted.link_of(route)));
    changes.extend(routes.map(|route| Change::AddRoute {
        route: route.normalized(),
        mode: Mode::Replace,
    }));
    let rules = wanted.rules.iter().filter(|rule| !now.rules.contains(rule));
    let rules = rules.filter(|rule| {
        let own = rule.from.map(|(ip, _)| ip);
        let mut addresses = new.iter().flat_map(|it| &it.addresses);
        own.is_some_and(|own| addresses.any(|(ip, _)| *ip == own))
    });
    changes.extend(rules.cloned().map(Change::AddRule));
    changes
}

/// Gives the stack the VLANs that these settings name and it lacks, if it is then the one asked
/// for. Returns whether it has been changed.
///
/// # Errors
/// The keeper refuses.
pub(crate) fn bring_vlans(
    settings: &Settings,
    welcome: &Welcome,
    is_as_asked: impl Fn(&Welcome) -> bool,
) -> Result<bool, Error> {
    let changes = changes(settings, &welcome.network);
    let Ok(network) = welcome.network.changed(&changes) else {
        return Ok(false);
    };
    let with = Welcome {
        network,
        ..welcome.clone()
    };
    if changes.is_empty() || !is_as_asked(&with) {
        return Ok(false);
    }
    let refused = |message: String| Error::Refused {
        refusal: Refusal::NotPermitted,
        message: format!(
            "the VLANs cannot be added to {}: {message}",
            welcome.interface
        ),
    };
    let path = crate::admin::control_socket(settings)?;
    let client = Client::connect(&path).map_err(|error| refused(error.to_string()))?;
    let made = client.ask(Query::Set(changes));
    made.map_err(|error| refused(error.to_string()))?;
    Ok(true)
}
