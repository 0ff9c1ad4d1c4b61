//! The keys that are DPDK's own, as arguments of a device of kind `dpdk`.

use super::fields;
use super::file::NoteKind;
use super::import::FileImport;
use crate::error::ConfigError;
use crate::table::OPTION;

/// Devices of each kind at most.
const DEVICES_MAX: u32 = 32;
/// Queues of a port in each direction at most.
const QUEUES_MAX: usize = slipstack_device::dpdk::QUEUES_MAX as usize;

/// Returns whether the file needs DPDK: it has devices that the kernel knows nothing of.
pub(crate) fn is_needed(import: &FileImport<'_>) -> Result<bool, ConfigError> {
    Ok(count(import, "nb_vdev")? > 0)
}

/// Gives the device with its arguments.
pub(crate) fn device(import: &mut FileImport<'_>, port: u32) -> Result<(), ConfigError> {
    let vdevs = virtual_devices(import)?;
    let bonds = bonds(import)?;
    let mut words = environment(import)?;
    words.extend(cards(import, !vdevs.is_empty())?);
    let is_numbered = bonds.is_empty();
    words.extend(vdevs.into_iter().chain(bonds));
    words.push("--".to_owned());
    if is_numbered {
        words.push(format!("--port={port}"));
    }
    words.extend(queues(import));
    words.extend(settings(import)?);
    let line = ["nb_vdev", "nb_bond", "allow", "pci_whitelist", "port_list"]
        .iter()
        .map(|key| import.line("dpdk", key))
        .find(|line| *line > 0);
    import.give(
        OPTION.device.name,
        format!("dpdk:{}", words.join(" ")),
        line.unwrap_or(0),
    );
    Ok(())
}

fn count(import: &FileImport<'_>, key: &str) -> Result<u32, ConfigError> {
    let any = |text: &str| fields::number(text, 0, DEVICES_MAX);
    Ok(import.parsed("dpdk", key, any)?.unwrap_or(0))
}

/// Memory and processors.
fn environment(import: &FileImport<'_>) -> Result<Vec<String>, ConfigError> {
    let mut words = Vec::new();
    let any = |text: &str| fields::number(text, 0, 1 << 20);
    if let Some(channels) = number_above_zero(import, "channel")? {
        words.extend(["-n".to_owned(), channels.to_string()]);
    }
    if let Some(memory) = import.parsed("dpdk", "memory", any)?.filter(|it| *it > 0) {
        words.extend(["-m".to_owned(), memory.to_string()]);
    }
    let has = |key| import.parsed("dpdk", key, fields::switch);
    if has("no_huge")?.unwrap_or(false) {
        words.push("--no-huge".to_owned());
    }
    if let Some(address) = import.parsed("dpdk", "base_virtaddr", address)? {
        words.push(format!("--base-virtaddr={address}"));
    }
    if let Some(prefix) = import.parsed("dpdk", "file_prefix", word)? {
        words.push(format!("--file-prefix=container-{prefix}"));
    }
    if let Some(level) = number_above_zero(import, "log_level")? {
        words.push(format!("--log-level={level}"));
    }
    Ok(words)
}

fn number_above_zero(import: &FileImport<'_>, key: &str) -> Result<Option<u32>, ConfigError> {
    let small = |text: &str| fields::number(text, 0, 32);
    Ok(import.parsed("dpdk", key, small)?.filter(|it| *it > 0))
}

/// A hexadecimal address.
fn address(text: &str) -> Result<String, String> {
    let digits = text.trim_start_matches("0x").trim_start_matches("0X");
    let address = u64::from_str_radix(digits, 16);
    address
        .map(|address| format!("{address:#x}"))
        .map_err(|_| "a hexadecimal address such as 0x7f0000000000".to_owned())
}

/// One word: an argument of DPDK's has no space in it.
fn word(text: &str) -> Result<String, String> {
    let is_word = !text.is_empty() && !text.contains(char::is_whitespace);
    is_word
        .then(|| text.to_owned())
        .ok_or_else(|| "one word without spaces".to_owned())
}

/// The cards that DPDK may probe, each with the arguments of its driver.
fn cards(import: &FileImport<'_>, has_vdevs: bool) -> Result<Vec<String>, ConfigError> {
    let mut words = Vec::new();
    for key in ["allow", "pci_whitelist"] {
        let allowed = import.parsed("dpdk", key, devices)?.unwrap_or_default();
        for device in allowed {
            words.extend(["-a".to_owned(), device]);
        }
    }
    if words.is_empty() && has_vdevs {
        words.push("--no-pci".to_owned());
    }
    Ok(words)
}

/// `02:00.0,k=v,03:00.0`: an item with an equals sign belongs to the device before it.
fn devices(text: &str) -> Result<Vec<String>, String> {
    let must =
        || "PCI addresses such as 0000:02:00.0, each with arguments of its driver".to_owned();
    let mut devices: Vec<String> = Vec::new();
    for part in text
        .split([',', ' '])
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        match (part.contains('='), devices.last_mut()) {
            (true, Some(last)) => *last = format!("{last},{part}"),
            (false, _) if part.contains(':') => devices.push(part.to_owned()),
            _ => return Err(must()),
        }
    }
    Ok(devices)
}

/// `[vdevN]`: the end of a vhost-user socket in a container.
fn virtual_devices(import: &FileImport<'_>) -> Result<Vec<String>, ConfigError> {
    let mut words = Vec::new();
    for number in 0..count(import, "nb_vdev")? {
        let section = format!("vdev{number}");
        let Some(path) = import.parsed(&section, "path", word)? else {
            let reason = format!("[{section}] has no path: the socket of vhost-user");
            return Err(import.refusal(import.line("dpdk", "nb_vdev"), reason));
        };
        let mut text = format!("--vdev=virtio_user{number},path={path}");
        for key in ["queues", "queue_size", "mac", "cq"] {
            if let Some(value) = import.parsed(&section, key, word)? {
                text.push_str(&format!(",{key}={value}"));
            }
        }
        words.push(text);
    }
    Ok(words)
}

/// `[bondN]`, in the words of DPDK's driver; `slave` holds those of the further members itself.
fn bonds(import: &FileImport<'_>) -> Result<Vec<String>, ConfigError> {
    const KEYS: [&str; 8] = [
        "slave",
        "primary",
        "socket_id",
        "mac",
        "xmit_policy",
        "lsc_poll_period_ms",
        "up_delay",
        "down_delay",
    ];
    let mut words = Vec::new();
    for number in 0..count(import, "nb_bond")? {
        let section = format!("bond{number}");
        if import.entry(&section, "slave").is_none() {
            let reason = format!("[{section}] has no slave: the devices that it consists of");
            return Err(import.refusal(import.line("dpdk", "nb_bond"), reason));
        }
        let mode = |text: &str| fields::number(text, 0, 6);
        let mode = import.parsed(&section, "mode", mode)?.unwrap_or(0);
        let mut text = format!("--vdev=net_bonding{number},mode={mode}");
        for key in KEYS {
            if let Some(value) = import.parsed(&section, key, word)? {
                text.push_str(&format!(",{key}={value}"));
            }
        }
        words.push(text);
    }
    Ok(words)
}

/// Our own options: F-Stack's settings of a port, with its defaults.
fn settings(import: &FileImport<'_>) -> Result<Vec<String>, ConfigError> {
    let has = |key, default| {
        let found = import.parsed("dpdk", key, fields::switch)?;
        Ok::<bool, ConfigError>(found.unwrap_or(default))
    };
    let mut words = Vec::new();
    if has("promiscuous", true)? {
        words.push("--promiscuous".to_owned());
    }
    if !has("tso", false)? {
        words.push("--no-tso".to_owned());
    }
    if has("tx_csum_offoad_skip", false)? {
        words.push("--no-checksum".to_owned());
    }
    if has("symmetric_rss", false)? {
        words.push("--symmetric-rss".to_owned());
    }
    if has("vlan_strip", false)? {
        words.push("--vlan-strip".to_owned());
    }
    let sleep = |text: &str| fields::number(text, 0, 1_000_000);
    if let Some(us) = import
        .parsed("dpdk", "idle_sleep", sleep)?
        .filter(|us| *us > 0)
    {
        words.push(format!("--sleep-us={us}"));
    }
    Ok(words)
}

/// As many queues as F-Stack would have processes, each with its own.
fn queues(import: &mut FileImport<'_>) -> Option<String> {
    let processes = import.out.processes();
    if processes > QUEUES_MAX
        && let Some(entry) = import.entry("dpdk", "lcore_mask").cloned()
    {
        let sentence = format!("a port has at most {QUEUES_MAX} queues, which engines share");
        import.note(&entry, NoteKind::Differs, sentence);
    }
    let queues = processes.min(QUEUES_MAX);
    (queues > 1).then(|| format!("--queues={queues}"))
}
