//! Ports, VLANs and their addresses.

use core::net::{IpAddr, Ipv4Addr};

use super::import::FileImport;
use super::{dpdk, fields};
use crate::cidr::Cidr;
use crate::error::ConfigError;
use crate::interface::InterfaceSpec;
use crate::table::OPTION;
use crate::vlan::VlanSpec;

/// Linux's main table, which is F-Stack's FIB 0.
const MAIN: u32 = 254;

/// A section that gives addresses: `[portN]`, or `[vlanN]` on one of the ports.
struct Attachment {
    section: String,
    /// Number of the port.
    port: u32,
    interface: String,
    vlan: Option<u16>,
    /// Number of its routing table in F-Stack.
    fib: u32,
}

impl Attachment {
    fn table(&self) -> u32 {
        match self.fib {
            0 => MAIN,
            fib => fib,
        }
    }
}

/// Finds the interfaces of a file and gives their addresses, gateways and rules to the options.
pub(crate) fn network(import: &mut FileImport<'_>) -> Result<(), ConfigError> {
    note_bonds(import)?;
    let list = |text: &str| fields::list(text, 255);
    let has_port = import.entries_of("port0").next().is_some();
    let ports = match import.parsed("dpdk", "port_list", list)? {
        Some(ports) => ports,
        None if has_port => vec![0],
        None => {
            let reason = "[dpdk] port_list is missing: it says which [portN] are used".to_owned();
            return Err(import.refusal(0, reason));
        }
    };
    let vlans = |text: &str| fields::list(text, 4094);
    let vlans = import
        .parsed("dpdk", "vlan_filter", vlans)?
        .unwrap_or_default();
    let has_section = |id: &&u32| import.entries_of(&format!("vlan{id}")).next().is_some();
    let configured: Vec<u32> = vlans.iter().filter(has_section).copied().collect();
    let attachments = match configured.as_slice() {
        [] => ports
            .iter()
            .map(|port| of_port(import, *port, &ports))
            .collect::<Vec<_>>(),
        ids => ids
            .iter()
            .map(|id| of_vlan(import, *id, &vlans, &ports))
            .collect(),
    };
    let attachments = attachments.into_iter().collect::<Result<Vec<_>, _>>()?;
    let line = import.line("dpdk", "port_list");
    let Some(first) = attachments.first() else {
        let reason = "[dpdk] port_list names no port".to_owned();
        return Err(import.refusal(line, reason));
    };
    import.give(OPTION.interface.name, first.interface.clone(), line);
    if import.is_dpdk {
        if attachments.iter().any(|other| other.port != first.port) {
            let reason = "[dpdk] port_list names several ports, and a stack has one of DPDK's";
            return Err(import.refusal(line, reason.to_owned()));
        }
        dpdk::device(import, first.port)?;
    } else {
        port_settings(import)?;
    }
    match attachments.as_slice() {
        [only] => attach(import, only)?,
        [first, further @ ..] if first.vlan.is_none() => {
            attach(import, first)?;
            attach_further(import, further)?;
        }
        vlans => attach_vlans(import, vlans)?,
    }
    rules(import, &attachments)
}

/// Without DPDK bonds are the kernel's.
fn note_bonds(import: &mut FileImport<'_>) -> Result<(), ConfigError> {
    let any = |text: &str| fields::number(text, 0, 255);
    let has_bonds = import.parsed("dpdk", "nb_bond", any)?.unwrap_or(0) > 0;
    if has_bonds && !import.is_dpdk {
        let sentence = "the port is a bond that the kernel has made, named by if_name";
        import.note_difference(("dpdk", "nb_bond"), sentence);
    }
    Ok(())
}

fn of_port(import: &FileImport<'_>, port: u32, ports: &[u32]) -> Result<Attachment, ConfigError> {
    Ok(Attachment {
        section: format!("port{port}"),
        port,
        interface: interface(import, port)?,
        vlan: None,
        // A single port uses the main table, whatever its number.
        fib: if ports.len() == 1 { 0 } else { port },
    })
}

fn of_vlan(
    import: &FileImport<'_>,
    id: u32,
    filter: &[u32],
    ports: &[u32],
) -> Result<Attachment, ConfigError> {
    let section = format!("vlan{id}");
    let any = |text: &str| fields::number(text, 0, 255);
    let port = import.parsed(&section, "portid", any)?.unwrap_or(0);
    if !ports.contains(&port) {
        let reason = format!("[{section}] is on port {port}, which port_list does not name");
        return Err(import.refusal(import.line(&section, "portid"), reason));
    }
    let fib = filter.iter().position(|it| *it == id).unwrap_or(0);
    Ok(Attachment {
        interface: interface(import, port)?,
        section,
        port,
        vlan: Some(id as u16),
        fib: fib as u32,
    })
}

/// The interface of a port. DPDK's has the name that F-Stack gives it; the kernel's is the one that
/// if_name names, else that of the N-th device that `allow` names, else the N-th Ethernet
/// interface.
fn interface(import: &FileImport<'_>, port: u32) -> Result<String, ConfigError> {
    let section = format!("port{port}");
    if import.is_dpdk {
        let named = import.entry(&section, "if_name");
        return Ok(named.map_or(format!("f-stack-{port}"), |entry| entry.value.clone()));
    }
    let all = import.interfaces.ethernet();
    if let Some(named) = import.entry(&section, "if_name")
        && all.contains(&named.value)
    {
        return Ok(named.value.clone());
    }
    let allowed = import
        .entry("dpdk", "allow")
        .or(import.entry("dpdk", "pci_whitelist"));
    let Some(allowed) = allowed else {
        let found = all.get(port as usize).cloned();
        return found.ok_or_else(|| {
            let line = import.line("dpdk", "port_list");
            import.refusal(
                line,
                format!("there is no {port}-th network interface (from 0)"),
            )
        });
    };
    let is_address = |word: &&str| word.contains(':') && !word.contains('=');
    let mut addresses: Vec<&str> = allowed
        .value
        .split([',', ' '])
        .map(str::trim)
        .filter(is_address)
        .collect();
    addresses.sort_unstable();
    let address = addresses.get(port as usize).copied().unwrap_or_default();
    import.interfaces.by_pci(address).ok_or_else(|| {
        import.wrong(
            allowed,
            &format!(
                "the PCI addresses of devices with a network interface of the kernel, one for \
                 port {port} too; devices of DPDK's need --device dpdk"
            ),
        )
    })
}

fn attach(import: &mut FileImport<'_>, attachment: &Attachment) -> Result<(), ConfigError> {
    let section = attachment.section.as_str();
    let addresses = own_addresses(import, section)?;
    if let Some(vlan) = attachment.vlan {
        let line = import.line("dpdk", "vlan_filter");
        import.give(OPTION.vlans.name, vlan.to_string(), line);
    }
    let line = import.line(section, "addr");
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    import.give(OPTION.addresses.name, addresses.join(","), line);
    let gateways = gateways(import, section)?;
    if !gateways.is_empty() {
        let line = import
            .line(section, "gateway")
            .max(import.line(section, "gateway6"));
        let gateways: Vec<String> = gateways.iter().map(ToString::to_string).collect();
        import.give(OPTION.gateways.name, gateways.join(","), line);
    }
    Ok(())
}

/// Ports after the first, each with the table of its number for its gateways, as F-Stack has it.
fn attach_further(import: &mut FileImport<'_>, ports: &[Attachment]) -> Result<(), ConfigError> {
    let mut specs = Vec::new();
    for port in ports {
        let section = port.section.as_str();
        let spec = InterfaceSpec {
            name: port.interface.clone(),
            addresses: own_addresses(import, section)?,
            gateways: gateways(import, section)?,
            table: Some(port.table()),
            vlan: None,
        };
        specs.push(spec.to_string());
    }
    let line = import.line("dpdk", "port_list");
    import.give(OPTION.further.name, specs.join(";"), line);
    Ok(())
}

/// Attaches VLANs to ports. The ports' own addresses have no meaning then. The IPv6 gateway of a
/// VLAN is in the same table as its other one, so that answers leave by the VLAN by which requests
/// arrived; F-Stack puts all of them into FIB 0.
fn attach_vlans(import: &mut FileImport<'_>, vlans: &[Attachment]) -> Result<(), ConfigError> {
    let first = vlans.first().map(|it| it.interface.clone());
    let mut specs = Vec::new();
    let mut further: Vec<String> = Vec::new();
    for attachment in vlans {
        let interface = Some(attachment.interface.clone());
        let interface = interface.filter(|_| first.as_ref() != Some(&attachment.interface));
        if let Some(name) = &interface
            && !further.contains(name)
        {
            further.push(name.clone());
        }
        let section = attachment.section.as_str();
        let spec = VlanSpec {
            within: None,
            id: attachment.vlan.unwrap_or(0),
            addresses: own_addresses(import, section)?,
            gateways: gateways(import, section)?,
            table: Some(attachment.table()),
            mtu: None,
            is_provider: false,
            priority: 0,
            interface,
        };
        specs.push(spec.to_string());
    }
    let line = import.line("dpdk", "vlan_filter");
    import.give(OPTION.vlans.name, specs.join(";"), line);
    if !further.is_empty() {
        let line = import.line("dpdk", "port_list");
        import.give(OPTION.further.name, further.join(";"), line);
    }
    Ok(())
}

/// Settings of every port: those that differ from what the interface does of itself.
fn port_settings(import: &mut FileImport<'_>) -> Result<(), ConfigError> {
    for (key, value, option) in [
        ("promiscuous", true, OPTION.is_promiscuous.name),
        ("tso", false, OPTION.has_no_segmentation.name),
        ("tx_csum_offoad_skip", true, OPTION.has_no_checksum.name),
    ] {
        if import.parsed("dpdk", key, fields::switch)? == Some(value) {
            import.give(option, "true".to_owned(), import.line("dpdk", key));
        }
    }
    Ok(())
}

fn own_addresses(import: &mut FileImport<'_>, section: &str) -> Result<Vec<Cidr>, ConfigError> {
    let addresses = addresses(import, section)?;
    if addresses.is_empty() {
        return Err(import.refusal(0, format!("[{section}] has no addr")));
    }
    Ok(addresses)
}

/// Every address of a section with its prefix length.
fn addresses(import: &mut FileImport<'_>, section: &str) -> Result<Vec<Cidr>, ConfigError> {
    let mut all = Vec::new();
    let len = import.parsed(section, "netmask", fields::netmask)?;
    if let Some(address) = import.parsed(section, "addr", fields::v4)? {
        let Some(len) = len else {
            let reason = format!("[{section}] has an addr without a netmask");
            return Err(import.refusal(import.line(section, "addr"), reason));
        };
        note_broadcast(import, section, (address, len))?;
        all.push(cidr(address, len));
    }
    let virtual_v4 = |text: &str| fields::addresses(text, fields::v4);
    let listed = import
        .parsed(section, "vip_addr", virtual_v4)?
        .unwrap_or_default();
    all.extend(listed.iter().map(|address| cidr(*address, 32)));
    let has_v6 = import.parsed("freebsd.boot", "kern.features.inet6", fields::switch)?;
    let len = |text: &str| fields::number(text, 16, 128);
    let own = import.parsed(section, "prefix_len", len)?.unwrap_or(64);
    let of_virtual = import.parsed(section, "vip_prefix_len", len)?.unwrap_or(64);
    let address = import.parsed(section, "addr6", fields::v6)?;
    let virtual_v6 = |text: &str| fields::addresses(text, fields::v6);
    let listed = import
        .parsed(section, "vip_addr6", virtual_v6)?
        .unwrap_or_default();
    if has_v6 != Some(false) {
        all.extend(address.map(|address| cidr(address, own as u8)));
        all.extend(
            listed
                .iter()
                .map(|address| cidr(*address, of_virtual as u8)),
        );
    }
    Ok(all)
}

fn cidr(address: impl Into<IpAddr>, prefix_len: u8) -> Cidr {
    Cidr {
        address: address.into(),
        prefix_len,
    }
}

fn note_broadcast(
    import: &mut FileImport<'_>,
    section: &str,
    (address, len): (Ipv4Addr, u8),
) -> Result<(), ConfigError> {
    let given = import.parsed(section, "broadcast", fields::v4)?;
    let host_bits = u32::MAX.checked_shr(u32::from(len)).unwrap_or(0);
    let own = Ipv4Addr::from_bits(address.to_bits() | host_bits);
    if given.is_some_and(|given| given != own) {
        let sentence = format!("the broadcast address of the network is {own}");
        import.note_difference((section, "broadcast"), &sentence);
    }
    Ok(())
}

fn gateways(import: &FileImport<'_>, section: &str) -> Result<Vec<IpAddr>, ConfigError> {
    let v4 = import
        .parsed(section, "gateway", fields::v4)?
        .map(IpAddr::from);
    let v6 = import
        .parsed(section, "gateway6", fields::v6)?
        .map(IpAddr::from);
    let has_v6 = import.entry(section, "addr6").is_some();
    let v6 = v6.filter(|_| has_v6);
    Ok([v4, v6].into_iter().flatten().collect())
}

/// Packets from the networks of ipfw_pr are routed by the table of their port.
fn rules(import: &mut FileImport<'_>, attachments: &[Attachment]) -> Result<(), ConfigError> {
    let (mut rules, mut routes, mut line) = (Vec::new(), Vec::new(), 0);
    for attachment in attachments {
        let section = attachment.section.as_str();
        let networks = import
            .parsed(section, "ipfw_pr", fields::networks)?
            .unwrap_or_default();
        if networks.is_empty() {
            continue;
        }
        line = import.line(section, "ipfw_pr");
        let table = attachment.table();
        let rule = |(network, len)| format!("from={network}/{len},table={table}");
        rules.extend(networks.into_iter().map(rule));
        if let Some(gateway) = import.parsed(section, "gateway", fields::v4)?
            && table != MAIN
            && attachments.len() == 1
        {
            routes.push(format!("0.0.0.0/0,via={gateway},table={table}"));
        }
    }
    if !rules.is_empty() {
        import.give(OPTION.rules.name, rules.join(";"), line);
    }
    if !routes.is_empty() {
        import.give(OPTION.routes.name, routes.join(";"), line);
    }
    Ok(())
}
