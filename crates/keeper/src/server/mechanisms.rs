//! Descriptions of the mechanisms in force on a device, for `status`.

use slipstack_device::{DropKind, LinkProperties};

use crate::resources::Resources;
use crate::steer::Spread;

/// Returns one sentence for each mechanism that decides which core processes a packet, and for each
/// optional one that is on.
pub(super) fn describe(resources: &Resources) -> Vec<String> {
    let state = &resources.state.network;
    let mut lines = vec![
        listeners(resources),
        "outgoing connections: engines lease blocks of ports, so answers come to the engine that \
         connected"
            .to_owned(),
    ];
    if let Some(delivery) = resources.slots.delivery() {
        lines.push(format!("queues: {delivery}"));
    }
    lines.extend(offloads(resources.slots.link()));
    match resources.slots.drop_kind() {
        DropKind::Tcx => lines.push(ingress("tcx")),
        DropKind::Clsact => lines.push(ingress("clsact")),
        DropKind::None => {}
    }
    if state.share.is_some() {
        lines.push("kni: ports of the stack's addresses are shared with the kernel".to_owned());
    }
    if state.is_forwarding {
        lines.push("forwarding: packets to other hosts are forwarded".to_owned());
    }
    match resources.state.filter.rules.len() {
        0 => {}
        1 => lines.push("filter: 1 rule".to_owned()),
        rules => lines.push(format!("filter: {rules} rules")),
    }
    lines
}

/// `program`: the kind of eBPF program that drops the frames.
fn ingress(program: &str) -> String {
    format!("kernel: it drops frames to the stack's addresses at its ingress ({program})")
}

fn listeners(resources: &Resources) -> String {
    let is = resources.slots.backend().capabilities();
    let by = match is.has_interface || is.makes_interface {
        true => "eBPF spreads",
        false => "whichever engine reads the device's ring spreads",
    };
    format!(
        "listeners: each engine has its own; {by} new flows over those whose program is there ({} \
         buckets{})",
        slipstack_device::BUCKETS,
        match &resources.options.spread {
            Spread::Hash => String::new(),
            Spread::Port => "; a TCP port has one engine".to_owned(),
            Spread::Shares(shares) => format!("; in the shares {shares:?}"),
            Spread::Turns => "; by turns".to_owned(),
            Spread::Table(rows) => format!("; by a table of {} networks", rows.len()),
            Spread::Program(path) => format!("; by the program {}", path.display()),
        }
    )
}

/// `None`: the device does nothing of the stack's work.
fn offloads(link: LinkProperties) -> Option<String> {
    let of = [
        (link.tx_checksum, "checksums"),
        (link.tso_max > 0, "segmentation of TCP"),
        (link.udp_segmentation, "segmentation of UDP"),
    ];
    let on: Vec<&str> = of
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, name)| *name)
        .collect();
    (!on.is_empty()).then(|| format!("device: {}", on.join(", ")))
}
