//! The machine: its cores, the queues of an interface and their interrupts.

use std::fs;
use std::path::{Path, PathBuf};

use slipstack_config::parse_cores;
use slipstack_device::iface::KernelInterface;

/// Cores that are on, in ascending order.
pub fn cores() -> Vec<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cores = parse_cores(text.trim()).unwrap_or_default();
    if cores.is_empty() { vec![0] } else { cores }
}

/// Cores as files of /sys take them: 32 bits to a word, the highest word first.
pub fn mask(cores: &[usize]) -> String {
    let words = cores.iter().max().map_or(1, |max| max / 32 + 1);
    let word = |index: usize| {
        let bits = cores.iter().filter(|core| *core / 32 == index);
        bits.fold(0u32, |all, core| all | 1 << (core % 32))
    };
    let words: Vec<String> = (0..words)
        .rev()
        .map(|at| format!("{:x}", word(at)))
        .collect();
    words.join(",")
}

/// Returns whether two such texts name the same cores: the kernel writes leading zeros and words.
pub fn is_same_mask(one: &str, other: &str) -> bool {
    let words = |text: &str| -> Vec<u32> {
        let words = text.split(',').rev();
        let mut words: Vec<u32> = words
            .map(|word| u32::from_str_radix(word.trim(), 16).unwrap_or(0))
            .collect();
        while words.last() == Some(&0) {
            words.pop();
        }
        words
    };
    words(one) == words(other)
}

/// The folder in /sys of an interface; `None` where /sys shows another network namespace than ours.
pub fn folder(interface: &KernelInterface) -> Option<PathBuf> {
    let folder = Path::new("/sys/class/net").join(&interface.name);
    is_folder_of(&folder, interface).then_some(folder)
}

/// Returns whether number and address of the interface are those of a folder.
fn is_folder_of(folder: &Path, interface: &KernelInterface) -> bool {
    let read = |file| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let digits = read("address").trim().replace(':', "");
    // An interface without an address has an empty one there.
    let mac = u64::from_str_radix(&digits, 16).unwrap_or(0);
    let own = interface.mac.iter();
    let own = own.fold(0, |all, byte| all << 8 | u64::from(*byte));
    read("ifindex").trim().parse() == Ok(interface.index) && mac == own
}

/// The queues of one direction in an interface's folder, by number: their names.
pub fn queues(folder: &Path, direction: &str) -> Vec<String> {
    (0..1024)
        .map(|queue| format!("queues/{direction}-{queue}"))
        .take_while(|name| folder.join(name).is_dir())
        .collect()
}

/// The place of a card in the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Lanes of its PCI Express link that are in use.
    pub lanes: Option<u32>,
    /// Memory node of the card with the cores there, on a machine with several nodes.
    pub node: Option<(u32, String)>,
}

impl Card {
    /// Reads the folders of a device and of the machine's memory nodes. A virtual interface has
    /// neither lanes nor a node.
    pub fn read(device: &Path, nodes: &Path) -> Card {
        let number = |file: &str| {
            let text = fs::read_to_string(device.join(file)).ok()?;
            text.trim().parse::<u32>().ok()
        };
        // -1 where the machine does not say, as on one without nodes.
        let node = number("numa_node").filter(|_| nodes.join("node1").is_dir());
        let cores = |node: &u32| fs::read_to_string(nodes.join(format!("node{node}/cpulist"))).ok();
        Card {
            lanes: number("current_link_width").filter(|lanes| *lanes != 0),
            node: node.and_then(|node| Some((node, cores(&node)?.trim().to_owned()))),
        }
    }
}

/// Numbers of the interrupts of a card's interface, in the order of its queues as far as they have
/// one.
pub fn interrupts(folder: &Path, interface: &str) -> Vec<u32> {
    let numbers = fs::read_dir(folder.join("device/msi_irqs"));
    let numbers = numbers.into_iter().flatten();
    let mut numbers: Vec<u32> = numbers
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    if !folder.join("device").exists() {
        // The list has the cards of all namespaces, one of which may have this interface's name.
        return numbers;
    }
    // The first ones of many cards are for events and not for a queue: those have a name in the
    // list.
    let list = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    let named = named_interrupts(&list, interface);
    if named.is_empty() { numbers } else { named }
}

/// Returns interrupts that the list assigns to this interface.
fn named_interrupts(list: &str, interface: &str) -> Vec<u32> {
    let is_its = |word: &str| {
        let mut parts = word.split('-');
        parts.any(|part| part == interface)
    };
    list.lines()
        .filter_map(|line| {
            let (number, rest) = line.trim().split_once(':')?;
            let number = number.parse().ok()?;
            rest.split_whitespace()
                .next_back()
                .is_some_and(is_its)
                .then_some(number)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_written_and_compared_as_the_kernel_does() {
        assert_eq!(mask(&[0]), "1");
        assert_eq!(mask(&[0, 1, 5]), "23");
        assert_eq!(mask(&[33]), "2,0");
        assert!(is_same_mask("00000002,00000000", &mask(&[33])));
        assert!(is_same_mask("0", ""));
        assert!(!is_same_mask("3", "1"));
    }

    #[test]
    fn a_card_has_its_pcie_lanes_and_with_several_numa_nodes_the_cores_of_its_node() {
        let folder = std::env::temp_dir().join(format!("slipstack-card-{}", std::process::id()));
        let (device, nodes) = (folder.join("device"), folder.join("node"));
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(Card::read(&device, &nodes), Card::default());
        write(device.join("current_link_width"), "16\n");
        write(device.join("numa_node"), "1\n");
        write(nodes.join("node0/cpulist"), "0-7\n");
        let card = Card::read(&device, &nodes);
        assert_eq!((card.lanes, card.node), (Some(16), None));
        write(nodes.join("node1/cpulist"), "8-15\n");
        let card = Card::read(&device, &nodes);
        assert_eq!(card.node, Some((1, "8-15".to_owned())));
        write(device.join("numa_node"), "-1\n");
        write(device.join("current_link_width"), "0\n");
        assert_eq!(Card::read(&device, &nodes), Card::default());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_sysfs_folder_with_another_index_or_address_is_of_another_namespace() {
        let folder = std::env::temp_dir().join(format!("slipstack-net-{}", std::process::id()));
        fs::create_dir_all(folder.join("queues/rx-0")).unwrap();
        fs::write(folder.join("ifindex"), "7\n").unwrap();
        fs::write(folder.join("address"), "02:00:00:00:00:0a\n").unwrap();
        let interface = |index, last| KernelInterface {
            index,
            name: "eth1".to_owned(),
            mac: [2, 0, 0, 0, 0, last],
            mtu: 1500,
            is_up: true,
            is_ethernet: true,
            is_loopback: false,
        };
        assert!(is_folder_of(&folder, &interface(7, 10)));
        assert!(!is_folder_of(&folder, &interface(8, 10)));
        assert!(!is_folder_of(&folder, &interface(7, 11)));
        assert_eq!(queues(&folder, "rx"), ["queues/rx-0"]);
        // One of a namespace without a card has no interrupts, whatever its name is.
        assert!(interrupts(&folder, "eth1").is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn interrupts_are_found_by_the_name_of_their_interface() {
        let list = "           CPU0       CPU1\n\
                    24:  1  2  PCI-MSI 1-edge  eth1-TxRx-0\n\
                    25:  1  2  PCI-MSI 2-edge  eth1-TxRx-1\n\
                    26:  1  2  PCI-MSI 3-edge  eth10-TxRx-0\n\
                    27:  1  2  PCI-MSI 4-edge  mlx5_comp0@pci\n\
                    NMI: 0  0  Non-maskable interrupts\n";
        assert_eq!(named_interrupts(list, "eth1"), [24, 25]);
        assert!(named_interrupts(list, "eth2").is_empty());
    }
}
