//! Arguments of DPDK's environment abstraction layer (EAL): the user's, and defaults for the rest.

use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_getaffinity};
use slipstack_device::dpdk::Options;

/// Words that say which processors are used.
const CORES: &[&str] = &["-l", "-c", "-s", "-S", "--lcores"];
/// Words that say how memory and files are shared.
const SHARING: &[&str] = &[
    "--in-memory",
    "--file-prefix",
    "--no-shconf",
    "--huge-unlink",
    "--huge-dir",
    "--legacy-mem",
];
/// Words that say which cards are probed.
const CARDS: &[&str] = &["-a", "--allow", "-b", "--block", "--no-pci"];

/// Drivers of the kernel's that leave a card to DPDK.
const FREEING: &[&str] = &["vfio-pci", "uio_pci_generic", "igb_uio"];

/// Returns the user's words, and the best ones where there are none.
pub fn words(options: &Options) -> Vec<String> {
    let says = |names: &[&str]| {
        let mut names = names.iter();
        names.any(|name| {
            options.has_eal(name) || has_glued(options, name) || has_begun(options, name)
        })
    };
    let mut words = vec!["slipstack-dpdk".to_owned()];
    words.extend(options.eal.iter().cloned());
    if !says(CORES) {
        // A thread for each queue, bound to no processor.
        words.push(match options.queues {
            1 => format!("--lcores=0@({})", allowed_cores()),
            queues => format!("--lcores=(0-{})@({})", queues - 1, allowed_cores()),
        });
    }
    if !says(SHARING) {
        // No file is left behind, however the process ends.
        words.push(match says(&["--no-huge"]) {
            true => "--no-shconf".to_owned(),
            false => "--in-memory".to_owned(),
        });
    }
    if !says(&["--telemetry", "--no-telemetry"]) {
        words.push("--no-telemetry".to_owned());
    }
    // The members of a bond are cards.
    let has_bond = options.eal.iter().any(|word| word.contains("net_bonding"));
    if options.has_eal("--vdev") && !says(CARDS) && !has_bond {
        words.push("--no-pci".to_owned());
    }
    words
}

/// Returns the path of a vhost-user socket that has to be there and is not.
pub fn missing_socket(options: &Options) -> Option<&str> {
    let ports = options
        .eal
        .iter()
        .filter(|word| word.contains("virtio_user"));
    let client = ports.filter(|word| !word.contains(",server=1"));
    let paths = client.flat_map(|word| word.split(',').filter_map(|it| it.strip_prefix("path=")));
    paths.into_iter().find(|path| !Path::new(path).exists())
}

/// Returns the PCI addresses of the cards that the words allow, without the arguments behind them.
fn allowed_cards(options: &Options) -> Vec<&str> {
    let mut words = options.eal.iter().map(String::as_str);
    let mut cards = Vec::new();
    while let Some(word) = words.next() {
        let value = match word {
            "-a" | "--allow" => words.next(),
            _ => word.strip_prefix("--allow=").or(word.strip_prefix("-a")),
        };
        let card = value.and_then(|value| value.split(',').next());
        cards.extend(card.filter(|card| is_pci_address(card)));
    }
    cards
}

/// Other buses have names of other forms.
fn is_pci_address(text: &str) -> bool {
    let mut parts = text.rsplit(':');
    let slot = parts.next().and_then(|last| last.split_once('.'));
    let is_hex = |part: &str| !part.is_empty() && part.chars().all(|it| it.is_ascii_hexdigit());
    slot.is_some_and(|(device, function)| is_hex(device) && is_hex(function))
        && (1..=2).contains(&parts.clone().count())
        && parts.all(is_hex)
}

/// Path of a card in the list of devices of `sysfs`; the domain may be left out.
fn card_directory(card: &str, sysfs: &Path) -> PathBuf {
    let domain = if card.matches(':').count() == 1 {
        "0000:"
    } else {
        ""
    };
    sysfs.join(format!("bus/pci/devices/{domain}{card}").to_lowercase())
}

/// Returns a sentence about the first allowed card that the machine does not have.
pub fn missing_card(options: &Options, sysfs: &Path) -> Option<String> {
    let mut cards = allowed_cards(options).into_iter();
    let card = cards.find(|card| !card_directory(card, sysfs).exists())?;
    Some(format!(
        "there is no PCI device {card} (lspci -D lists those that there are)"
    ))
}

/// Returns a sentence about the first allowed card that no driver of DPDK's gets, for a port that
/// was not found.
pub fn unbound_card(options: &Options, sysfs: &Path) -> Option<String> {
    let card = allowed_cards(options).into_iter().next()?;
    let driver = std::fs::read_link(card_directory(card, sysfs).join("driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name);
    let is_with = match driver.and_then(|name| name.to_str()) {
        Some(name) if FREEING.contains(&name) => return None,
        Some(name) => format!("belongs to the kernel's driver {name}"),
        None => "has no driver".to_owned(),
    };
    Some(format!(
        "DPDK finds no port: the PCI device {card} {is_with}; bind it with \
         dpdk-devbind.py --bind=vfio-pci {card}, or allow another one with -a ADDRESS"
    ))
}

/// A short option may have its value right behind it: `-l0`.
fn has_glued(options: &Options, name: &str) -> bool {
    let is_short = name.len() == 2;
    let is_it = |word: &String| word.starts_with(name);
    is_short && options.eal.iter().any(is_it)
}

/// A long option may be shortened: `--no-hug`.
fn has_begun(options: &Options, name: &str) -> bool {
    let word = |word: &String| word.split('=').next().unwrap_or_default().to_owned();
    let mut words = options.eal.iter().map(word);
    words.any(|word| word.len() > "--no-".len() && name.starts_with(&word))
}

/// The processors that this process may run on, so that its threads are bound to none of them.
fn allowed_cores() -> String {
    let Ok(set) = sched_getaffinity(None) else {
        return "0".to_owned();
    };
    let cores = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core));
    let cores: Vec<String> = cores.map(|core| core.to_string()).collect();
    cores.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Options {
        Options::parse(Some(text)).unwrap()
    }

    #[test]
    fn missing_and_busy_cards_are_named() {
        let sysfs = std::env::temp_dir().join(format!("slipstack-sysfs-{}", std::process::id()));
        let devices = sysfs.join("bus/pci/devices");
        std::fs::create_dir_all(devices.join("0000:02:00.0")).unwrap();
        std::fs::create_dir_all(devices.join("0000:03:00.0")).unwrap();
        for (card, driver) in [("0000:02:00.0", "ixgbe"), ("0000:03:00.0", "vfio-pci")] {
            std::os::unix::fs::symlink(
                format!("/drivers/{driver}"),
                devices.join(card).join("driver"),
            )
            .unwrap();
        }
        for text in [
            "-a 0000:99:00.0",
            "--allow=99:00.0,x=1",
            "-a99:00.0",
            "--allow 99:00.0",
        ] {
            let said = missing_card(&options(text), &sysfs).unwrap();
            assert!(
                said.contains("no PCI device ") && said.contains("99:00.0"),
                "{said}"
            );
        }
        for text in [
            "-a 02:00.0",
            "-a 0000:03:00.0,x=1",
            "--vdev=net_tap0",
            "-a fslmc:dpni.1",
        ] {
            assert_eq!(missing_card(&options(text), &sysfs), None, "{text}");
        }
        let said = unbound_card(&options("-a 02:00.0"), &sysfs).unwrap();
        assert!(
            said.contains("02:00.0 belongs to the kernel's driver ixgbe"),
            "{said}"
        );
        assert_eq!(unbound_card(&options("-a 0000:03:00.0"), &sysfs), None);
        std::fs::remove_dir_all(&sysfs).unwrap();
    }

    #[test]
    fn missing_eal_options_get_defaults_and_given_ones_are_kept() {
        let options = Options::parse(Some("--no-huge --vdev=net_tap0")).unwrap();
        let all = words(&options);
        assert!(all.iter().any(|word| word.starts_with("--lcores=0@(")));
        for word in ["--no-shconf", "--no-pci", "--no-telemetry", "--no-huge"] {
            assert!(all.iter().any(|it| it == word), "{word}");
        }
        let options = Options::parse(Some("--vdev=net_tap0 -- --queues=4")).unwrap();
        assert!(
            words(&options)
                .iter()
                .any(|word| word.starts_with("--lcores=(0-3)@("))
        );
        let text = "--vdev=virtio_user0,path=/no/such,queues=2";
        let options = Options::parse(Some(text)).unwrap();
        assert_eq!(missing_socket(&options), Some("/no/such"));
        let text = "--vdev=virtio_user0,path=/no/such,server=1 --vdev=virtio_user1,path=/dev/null";
        assert_eq!(missing_socket(&Options::parse(Some(text)).unwrap()), None);
        let options = Options::parse(Some("--no-hug --no-tele")).unwrap();
        let all = words(&options);
        assert!(
            all.iter().any(|word| word == "--no-shconf") && all.len() == 5,
            "{all:?}"
        );
        let options = Options::parse(Some("-a 0000:02:00.0")).unwrap();
        assert!(words(&options).iter().any(|word| word == "--in-memory"));
        let text = "-l1 --file-prefix x -a 0000:02:00.0 --vdev net_bonding0 --no-telemetry";
        let options = Options::parse(Some(text)).unwrap();
        assert_eq!(words(&options).len(), 1 + options.eal.len());
    }
}
