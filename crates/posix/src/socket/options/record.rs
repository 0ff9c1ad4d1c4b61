//! The options a program has set, in order, with their last values.

use std::sync::Arc;

use slipstack_channel::SocketOption;

use crate::socket::ErrorQueueMessages;
use crate::socket::ancillary::{TIMESTAMP_NEW, TIMESTAMPING_NEW, TIMESTAMPNS_NEW};
use crate::socket::options::way;

/// One option as it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) level: i32,
    pub(crate) name: i32,
    pub(crate) value: Box<[u8]>,
}

/// Options that are recorded; programs set a handful.
const OPTIONS_MAX: usize = 128;

/// Level, name and length of an option that another process is told.
const HEAD: usize = 3 * 4;

/// The options of one socket. Cheap to clone: accepted sockets inherit their listener's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    all: Option<Arc<Vec<Set>>>,
}

impl Options {
    pub(crate) fn all(&self) -> &[Set] {
        self.all.as_deref().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_none()
    }

    pub(crate) fn set(&mut self, level: i32, name: i32, value: &[u8]) {
        let all = Arc::make_mut(self.all.get_or_insert_default());
        if is_timestamp(level, name) {
            // The last of them counts, whether it switches on or off.
            all.retain(|set| set.name == name || !is_timestamp(set.level, set.name));
        }
        if is_stamping(level, name) {
            all.retain(|set| set.name == name || !is_stamping(set.level, set.name));
        }
        if (level, name) == (libc::IPPROTO_IP, libc::IP_TOS) {
            // Linux: it sets the class too (sk_priority).
            all.retain(|set| (set.level, set.name) != (libc::SOL_SOCKET, libc::SO_PRIORITY));
        }
        let same = |set: &&mut Set| set.level == level && set.name == name;
        // Memberships add up; all others replace.
        if !is_membership(level, name)
            && let Some(set) = all.iter_mut().find(same)
        {
            set.value = value.into();
        } else if all.len() < OPTIONS_MAX {
            all.push(Set {
                level,
                name,
                value: value.into(),
            });
        }
    }

    /// Returns those that an accepted connection has from its listener (sk_clone_lock(): all but
    /// the class, which IP_TOS sets too).
    pub(crate) fn of_accepted(&self) -> Options {
        const CLASS: (i32, i32) = (libc::SOL_SOCKET, libc::SO_PRIORITY);
        const TOS: (i32, i32) = (libc::IPPROTO_IP, libc::IP_TOS);
        let mut options = self.clone();
        if let Some(all) = &mut options.all
            && all
                .iter()
                .any(|set| [CLASS, TOS].contains(&(set.level, set.name)))
        {
            Arc::make_mut(all).retain(|set| (set.level, set.name) != CLASS);
            options.set(CLASS.0, CLASS.1, &0i32.to_ne_bytes());
        }
        options
    }

    /// Returns them for another process, as far as there is room.
    pub(crate) fn write(&self, room: &mut [u8]) -> usize {
        let mut at = 0;
        for set in self.all() {
            let len = set.value.len();
            let Some(place) = room.get_mut(at..at + HEAD + len) else {
                break;
            };
            let (head, value) = place.split_at_mut(HEAD);
            head[..4].copy_from_slice(&set.level.to_le_bytes());
            head[4..8].copy_from_slice(&set.name.to_le_bytes());
            head[8..].copy_from_slice(&(len as u32).to_le_bytes());
            value.copy_from_slice(&set.value);
            at += HEAD + len;
        }
        at
    }

    /// Reads what [`Options::write`] has written.
    pub(crate) fn read(mut bytes: &[u8]) -> Options {
        let mut options = Options::default();
        while let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
            let word = |at: usize| i32::from_le_bytes([0, 1, 2, 3].map(|byte| head[at + byte]));
            let len = usize::try_from(word(8)).unwrap_or(usize::MAX);
            let Some((value, rest)) = rest.split_at_checked(len) else {
                break;
            };
            options.set(word(0), word(4), value);
            bytes = rest;
        }
        options
    }

    pub(crate) fn bytes(&self, level: i32, name: i32) -> Option<&[u8]> {
        let found = |set: &&Set| set.level == level && set.name == name;
        self.all().iter().find(found).map(|set| &*set.value)
    }

    pub(crate) fn int(&self, level: i32, name: i32) -> Option<i32> {
        int_of(self.bytes(level, name)?)
    }

    pub(crate) fn is_on(&self, level: i32, name: i32) -> bool {
        self.int(level, name).is_some_and(|value| value != 0)
    }

    /// Whether the socket is bound to an interface of the stack's.
    pub(crate) fn has_link(&self) -> bool {
        self.is_on(libc::SOL_SOCKET, way::STACKS_LINK)
    }

    /// SO_BINDTODEVICE or SO_BINDTOIFINDEX with an interface that is not the stack's.
    pub(crate) fn has_device(&self) -> bool {
        if self.has_link() {
            return false;
        }
        [libc::SO_BINDTODEVICE, libc::SO_BINDTOIFINDEX]
            .into_iter()
            .filter_map(|name| self.bytes(libc::SOL_SOCKET, name))
            .any(|value| value.iter().any(|byte| *byte != 0))
    }

    /// Returns the messages wanted in the error queue beside those that the network sends back.
    pub(crate) fn error_queue_messages(&self) -> ErrorQueueMessages {
        ErrorQueueMessages {
            is_zerocopy: self.is_on(libc::SOL_SOCKET, libc::SO_ZEROCOPY),
            is_selected: self.is_on(libc::SOL_SOCKET, libc::SO_SELECT_ERR_QUEUE),
            stamps: self.timestamping(),
            queued: 0,
        }
    }

    pub(crate) fn has_freebind(&self) -> bool {
        let last = self.all().iter().rfind(|set| {
            let of = (set.level, set.name);
            of == (libc::IPPROTO_IP, libc::IP_FREEBIND)
                || of == (libc::IPPROTO_IPV6, libc::IPV6_FREEBIND)
        });
        last.is_some_and(|set| set.value.iter().any(|byte| *byte != 0))
    }

    /// Returns the mark and the table (0 = none) that rules are asked with.
    pub(crate) fn mark_and_table(&self) -> (u32, u16) {
        let of = |name| way::for_stack(name, self.int(libc::SOL_SOCKET, name));
        let mark = match of(libc::SO_MARK) {
            Some(SocketOption::Mark(mark)) => mark,
            _ => 0,
        };
        let table = match of(way::SO_SETFIB) {
            Some(SocketOption::Table(table)) => table,
            _ => 0,
        };
        (mark, table)
    }

    /// Returns whether the socket may have an address that is nobody's here (IP_TRANSPARENT).
    pub(crate) fn is_transparent(&self) -> bool {
        self.is_on(libc::IPPROTO_IP, libc::IP_TRANSPARENT)
            || self.is_on(libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT)
    }

    /// SO_TIMESTAMPING, by either of its numbers.
    pub(crate) fn timestamping(&self) -> u32 {
        let set = |name| self.int(libc::SOL_SOCKET, name);
        let value = set(TIMESTAMPING_NEW).or_else(|| set(libc::SO_TIMESTAMPING));
        value.unwrap_or(0).cast_unsigned()
    }
}

fn is_timestamp(level: i32, name: i32) -> bool {
    level == libc::SOL_SOCKET
        && matches!(
            name,
            libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS | TIMESTAMP_NEW | TIMESTAMPNS_NEW
        )
}

fn is_stamping(level: i32, name: i32) -> bool {
    level == libc::SOL_SOCKET && matches!(name, libc::SO_TIMESTAMPING | TIMESTAMPING_NEW)
}

fn is_membership(level: i32, name: i32) -> bool {
    match level {
        libc::IPPROTO_IP => matches!(
            name,
            libc::IP_ADD_MEMBERSHIP | libc::IP_DROP_MEMBERSHIP | libc::IP_ADD_SOURCE_MEMBERSHIP
        ),
        libc::IPPROTO_IPV6 => {
            matches!(name, libc::IPV6_ADD_MEMBERSHIP | libc::IPV6_DROP_MEMBERSHIP)
        }
        _ => false,
    }
}

/// The int at the front of an option's value.
pub(crate) fn int_of(bytes: &[u8]) -> Option<i32> {
    let four: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    Some(i32::from_ne_bytes(four))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_reads_the_set_values() {
        let mut options = Options::default();
        options.set(libc::IPPROTO_TCP, libc::TCP_NODELAY, &1i32.to_ne_bytes());
        options.set(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"");
        options.set(libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"cubic");
        let mut room = [0; 200];
        let len = options.write(&mut room);
        assert_eq!(Options::read(&room[..len]).all(), options.all());
        assert_eq!(Options::read(&room[..len - 1]).all(), &options.all()[..2]);
        let short = options.write(&mut room[..len - 1]);
        assert_eq!(Options::read(&room[..short]).all(), &options.all()[..2]);
        assert!(Options::read(&[0xff; 40]).is_empty());
    }
}
