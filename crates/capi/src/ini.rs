//! What a first look at F-Stack's config.ini gives: the device and the addresses of one port.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::Path;

/// The options that a file sets: variable and text.
///
/// # Errors
/// One sentence, with the line where there is one.
pub fn read(file: &Path) -> Result<Vec<(&'static str, String)>, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
    options(&text).map_err(|what| format!("{name}{what}"))
}

fn options(text: &str) -> Result<Vec<(&'static str, String)>, String> {
    let keys = keys(text)?;
    let value = |section: &str, key: &str| {
        let at = (section.to_owned(), key.to_owned());
        keys.get(&at).map(String::as_str)
    };
    let ports = value("dpdk", "port_list").unwrap_or("0");
    let port = ports.split([',', '-']).next().unwrap_or("0").trim();
    let section = format!("port{port}");
    let of_port = |key: &str| value(&section, key);
    let mut found = Vec::new();
    let mut addresses = Vec::new();
    if let Some(addr) = of_port("addr") {
        let mask = of_port("netmask").unwrap_or("255.255.255.0");
        let length = prefix_len(mask)
            .ok_or_else(|| format!(": [{section}] netmask is '{mask}' but must be a netmask"))?;
        addresses.push(format!("{addr}/{length}"));
    }
    if let Some(addr) = of_port("addr6") {
        let length = of_port("prefix_len").unwrap_or("64");
        addresses.push(format!("{addr}/{length}"));
    }
    if !addresses.is_empty() {
        found.push(("SLIPSTACK_IP", addresses.join(",")));
    }
    let gateways = ["gateway", "gateway6"].into_iter().filter_map(of_port);
    let gateways: Vec<&str> = gateways.filter(|gateway| *gateway != "0.0.0.0").collect();
    if !gateways.is_empty() {
        found.push(("SLIPSTACK_GW", gateways.join(",")));
    }
    if let Some(name) = of_port("if_name").filter(|name| is_interface(name)) {
        found.push(("SLIPSTACK_IF", name.to_owned()));
    }
    Ok(found)
}

/// Section and key of every line, with the value; of a key that comes twice the last one counts.
fn keys(text: &str) -> Result<HashMap<(String, String), String>, String> {
    let mut keys = HashMap::new();
    let mut section = String::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.split(']').next().unwrap_or(name);
            section = name.trim().to_owned();
            continue;
        }
        let Some((key, value)) = line.split_once(['=', ':']) else {
            return Err(format!(":{}: no key and value", number + 1));
        };
        let value = value.split(" ;").next().unwrap_or(value);
        let at = (section.clone(), key.trim().to_owned());
        keys.insert(at, value.trim().to_owned());
    }
    Ok(keys)
}

fn prefix_len(mask: &str) -> Option<u32> {
    let bits = mask.parse::<Ipv4Addr>().ok()?.to_bits();
    (bits.leading_ones() + bits.trailing_zeros() >= 32).then(|| bits.leading_ones())
}

fn is_interface(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_becomes_address_and_gateway() {
        let text = "[dpdk]\nlcore_mask=1\nport_list=1\n\n[port1]\naddr=10.0.0.5 ; ours\n\
                    netmask=255.255.240.0\nbroadcast=10.0.15.255\ngateway=10.0.0.1\n";
        let found = options(text).unwrap();
        let wanted = [
            ("SLIPSTACK_IP", "10.0.0.5/20".to_owned()),
            ("SLIPSTACK_GW", "10.0.0.1".to_owned()),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_is_no_line_of_it_is_told_with_its_number() {
        assert_eq!(
            options("[dpdk]\nnonsense\n"),
            Err(":2: no key and value".to_owned())
        );
        assert!(options("[port0]\naddr=10.0.0.1\nnetmask=255.0.255.0\n").is_err());
    }
}
