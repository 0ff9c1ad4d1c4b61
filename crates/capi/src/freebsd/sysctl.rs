//! sysctl by FreeBSD's numbers (MIB): the machine's few values, and the stack's by the names of
//! `slipstack sysctl`.

use slipstack_attach::net::Change;
use slipstack_config::sysctl::SysctlError;
use slipstack_config::sysctl::{self as table, Meaning, NetworkSwitch, SYSCTLS, Sysctl};
use slipstack_posix::Errno;

use crate::descriptors::abi::{ff_getmaxfd, page_size};
use crate::{life, network};

/// CTL_SYSCTL: questions about the tree itself.
const TREE: i32 = 0;
const TREE_NAME: i32 = 1;
const TREE_NEXT: i32 = 2;
const TREE_NUMBERS: i32 = 3;
const TREE_FORMAT: i32 = 4;
const TREE_HELP: i32 = 5;

/// FreeBSD gives numbers from here on to names that have none of their own. The stack's names are
/// numbered by their place in the table, below `net`.
const NET: i32 = 4;
const AUTO: i32 = 0x100;

/// CTLTYPE_INT, CTLTYPE_STRING; CTLFLAG_RD, CTLFLAG_WR.
const TYPE_INT: u32 = 2;
const TYPE_STRING: u32 = 3;
const READ: u32 = 0x8000_0000;
const WRITE: u32 = 0x4000_0000;

/// Numbers, name and value of the machine's own values.
fn machine() -> [([i32; 2], &'static str, i32); 4] {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    [
        ([1, 7], "kern.maxfiles", ff_getmaxfd()),
        ([1, 27], "kern.maxfilesperproc", ff_getmaxfd()),
        ([6, 3], "hw.ncpu", i32::try_from(cores).unwrap_or(1)),
        ([6, 7], "hw.pagesize", page_size()),
    ]
}

/// One value of the tree.
#[derive(Clone, Copy)]
enum Node {
    Machine([i32; 2], &'static str, i32),
    Stack(usize, &'static Sysctl),
}

impl Node {
    /// All nodes, in the order of their numbers.
    fn all() -> impl Iterator<Item = Node> {
        let own = machine();
        let (before, after) = (own[..2].to_vec(), own[2..].to_vec());
        let node = |(numbers, name, value)| Node::Machine(numbers, name, value);
        let has_value = |(_, row): &(usize, &Sysctl)| !matches!(row.meaning, Meaning::Moot(_));
        let stack = SYSCTLS.iter().enumerate().filter(has_value);
        let stack = stack.map(|(index, row)| Node::Stack(index, row));
        let before = before.into_iter().map(node);
        before.chain(stack).chain(after.into_iter().map(node))
    }

    fn by_name(name: &[u8]) -> Option<Node> {
        Node::all().find(|node| node.name().as_bytes() == name)
    }

    fn by_numbers(numbers: &[i32]) -> Option<Node> {
        Node::all().find(|node| node.numbers() == numbers)
    }

    fn name(self) -> &'static str {
        match self {
            Node::Machine(_, name, _) => name,
            Node::Stack(_, row) => row.name,
        }
    }

    fn numbers(self) -> Vec<i32> {
        match self {
            Node::Machine(numbers, ..) => numbers.to_vec(),
            Node::Stack(index, _) => vec![NET, AUTO + i32::try_from(index).unwrap_or(0)],
        }
    }

    fn is_text(self) -> bool {
        match self {
            Node::Machine(..) => false,
            Node::Stack(_, row) => match row.meaning {
                Meaning::Is(..) | Meaning::Network(_) | Meaning::Moot(_) => false,
                Meaning::Sizes { .. } | Meaning::Range { .. } | Meaning::Choice(..) => true,
                Meaning::Fixed(value, _) => value.parse::<i32>().is_err(),
            },
        }
    }

    fn may_be_set(self) -> bool {
        match self {
            Node::Machine(..) => false,
            Node::Stack(_, row) => !matches!(row.meaning, Meaning::Fixed(..) | Meaning::Moot(_)),
        }
    }

    fn help(self) -> String {
        match self {
            Node::Machine(_, name, _) => name.to_owned(),
            Node::Stack(_, row) => row.explanation(),
        }
    }

    fn value(self) -> Result<Vec<u8>, Errno> {
        let text = match self {
            Node::Machine(_, _, value) => value.to_string(),
            Node::Stack(_, row) => stack_value(row)?,
        };
        if self.is_text() {
            return Ok(with_end(&text));
        }
        // The stack's numbers have no sign; C programs take the 32 bits as they like.
        let number: i64 = text.parse().map_err(|_| Errno::EINVAL)?;
        Ok((number as u32).to_ne_bytes().to_vec())
    }

    fn set(self, new: &[u8]) -> Result<(), Errno> {
        let Node::Stack(_, row) = self else {
            return Err(Errno::EPERM);
        };
        let text = match self.is_text() {
            true => {
                let text = new.split(|byte| *byte == 0).next().unwrap_or_default();
                String::from_utf8(text.to_vec()).map_err(|_| Errno::EINVAL)?
            }
            false => {
                let bytes = new.try_into().map_err(|_| Errno::EINVAL)?;
                u32::from_ne_bytes(bytes).to_string()
            }
        };
        let changes = table::live_changes(row, &text).map_err(|error| errno_of(&error))?;
        let change = |(name, value): (&'static str, u32)| Change::Tune {
            name: name.to_owned(),
            value,
        };
        let switch = table::network_switch(row, &text).map(|(switch, is_on)| match switch {
            NetworkSwitch::Forwarding => Change::SetForwarding(is_on),
            NetworkSwitch::ConnectsAllTables => Change::ConnectAllTables(is_on),
        });
        let changes = changes.into_iter().map(change);
        network::change(changes.chain(switch).collect())
    }
}

fn stack_value(row: &'static Sysctl) -> Result<String, Errno> {
    let settings = life::options().ok_or(Errno::ENETDOWN)?;
    let mut values = settings.sysctl_values();
    let network = network::network()?;
    for (name, value) in &network.tunables {
        values.set(name, *value);
    }
    values.is_forwarding = network.is_forwarding;
    values.connects_all_tables = network.connects_all_tables;
    values.read(row).map_err(|error| errno_of(&error))
}

fn errno_of(error: &SysctlError) -> Errno {
    match error {
        SysctlError::Unknown { .. } | SysctlError::Moot { .. } => Errno::ENOENT,
        SysctlError::Fixed { .. } | SysctlError::AtStart { .. } => Errno::EPERM,
        SysctlError::Value { .. } => Errno::EINVAL,
    }
}

fn with_end(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

fn words(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|it| it.to_ne_bytes()).collect()
}

/// One call: returns the old value, and sets the `new` one, unless that is empty. If numbers are
/// requested, `new` is the name.
///
/// # Errors
/// ENOENT: there is no such value. EPERM: it is read-only. EINVAL: the new value is invalid.
pub fn call(numbers: &[i32], new: &[u8]) -> Result<Vec<u8>, Errno> {
    let found = || Node::by_numbers(&numbers[2..]).ok_or(Errno::ENOENT);
    match numbers {
        [TREE, TREE_NUMBERS] => {
            let name = new.split(|byte| *byte == 0).next().unwrap_or_default();
            let node = Node::by_name(name).ok_or(Errno::ENOENT)?;
            Ok(words(&node.numbers()))
        }
        [TREE, TREE_NAME, ..] => Ok(with_end(found()?.name())),
        [TREE, TREE_NEXT, at @ ..] => {
            let next = Node::all().find(|node| node.numbers().as_slice() > at);
            Ok(words(&next.ok_or(Errno::ENOENT)?.numbers()))
        }
        [TREE, TREE_FORMAT, ..] => {
            let node = found()?;
            let (kind, format) = match node.is_text() {
                true => (TYPE_STRING, "A"),
                false => (TYPE_INT, "I"),
            };
            let access = READ | if node.may_be_set() { WRITE } else { 0 };
            let mut bytes = (kind | access).to_ne_bytes().to_vec();
            bytes.extend(with_end(format));
            Ok(bytes)
        }
        [TREE, TREE_HELP, ..] => Ok(with_end(&found()?.help())),
        numbers => {
            let node = Node::by_numbers(numbers).ok_or(Errno::ENOENT)?;
            let old = node.value()?;
            if !new.is_empty() {
                node.set(new)?;
            }
            Ok(old)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sysctl_name_becomes_an_oid_and_an_oid_a_value() {
        let numbers = call(&[0, 3], b"hw.pagesize\0").unwrap();
        assert_eq!(numbers, words(&[6, 7]));
        assert_eq!(call(&[6, 7], b""), Ok(page_size().to_ne_bytes().to_vec()));
        assert_eq!(call(&[6, 7], b"x"), Err(Errno::EPERM));
        assert_eq!(call(&[9, 9], b""), Err(Errno::ENOENT));
        assert_eq!(call(&[], b""), Err(Errno::ENOENT));
    }

    #[test]
    fn a_zone_walk_visits_every_name_in_order() {
        let (mut at, mut names) = (vec![], vec![]);
        while let Ok(next) = call(&[&[0, 2], at.as_slice()].concat(), b"") {
            let number = |bytes: &[u8]| i32::from_ne_bytes(bytes.try_into().unwrap());
            at = next.chunks(4).map(number).collect();
            names.push(call(&[&[0, 1], at.as_slice()].concat(), b"").unwrap());
        }
        assert_eq!(names.len(), Node::all().count());
        assert!(names.contains(&b"net.inet.tcp.delayed_ack\0".to_vec()));
    }

    #[test]
    fn a_format_gives_kind_and_access() {
        let numbers = Node::by_name(b"net.inet.tcp.delayed_ack")
            .unwrap()
            .numbers();
        let format = call(&[&[0, 4], numbers.as_slice()].concat(), b"").unwrap();
        assert_eq!(format[..4], (TYPE_INT | READ | WRITE).to_ne_bytes());
        assert_eq!(&format[4..], b"I\0");
    }
}
