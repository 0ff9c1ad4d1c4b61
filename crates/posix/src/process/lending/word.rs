//! The word that the kernel's part of a socket carries to the program that gets it: whether calls
//! on the socket block, its inode, the address that a datagram socket is connected to, and options
//! that the kernel's part cannot tell.
//!
//! A word is the beginning of the socket's filter: constants that are loaded and not used. The
//! filter that the kernel's part has without it follows, or an instruction that lets everything
//! pass.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::atomic::Ordering;

use slipstack_mem::Descriptor;

use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::process::table::Table;
use crate::socket::Side;
use crate::socket::description::{Decided, Description};
use crate::socket::options::attaching::{
    ATTACH, DETACH, attach_filter, is_extended, is_group_filter,
};
use crate::socket::options::{Membership, Options, Set, is_untold};

/// SO_SELECT_ERR_QUEUE (asm-generic/socket.h), which has no effect on sockets without an error
/// queue.
const MODE: i32 = 45;

/// The first constant of a filter that carries a word.
const MARK: u32 = 0x51a9_57ad;
/// BPF_LD | BPF_W | BPF_IMM and BPF_RET | BPF_K (linux/filter.h).
const LOAD: u16 = 0x00;
const RETURN: u16 = 0x06;
/// Lets everything pass; no program's filter is this one.
const ALL: u32 = 0x7fff_57ad;
const INSTRUCTION: usize = 8;
/// BPF_MAXINSNS (linux/bpf_common.h).
const INSTRUCTIONS_MAX: usize = 4096;
/// Bytes of options that are carried at most.
const OPTIONS_MAX: usize = 5120;
/// Bytes of the inode, the port, the zone, the address and the offset of SO_PEEK_OFF.
const FIXED: usize = 8 + 2 + 4 + 16 + 4;
/// Bytes of a membership without its sources: the group, the link, the mode and how many they are.
const MEMBERSHIP: usize = 16 + 2 + 1 + 2;

/// Facts that a socket is sent with, beside its mode.
#[derive(Debug, Clone)]
pub(crate) struct Word {
    pub(crate) inode: u64,
    pub(crate) remote: Option<SocketAddr>,
    peek_offset: i32,
    memberships: Vec<Membership>,
    /// Options that the kernel's part does not tell, and the program's filter, which that has.
    options: Options,
}

impl Word {
    pub(crate) fn of(socket: &Description, inode: u64, remote: Option<SocketAddr>) -> Word {
        let cold = socket.cold.lock();
        let mut options = Options::default();
        let all = cold.options.all().iter();
        let is_meant = |set: &&Set| is_untold(set.level, set.name) && !is_extended(set);
        for set in all.filter(is_meant) {
            options.set(set.level, set.name, &set.value);
        }
        Word {
            inode,
            remote,
            peek_offset: socket.peek_offset.load(Ordering::Relaxed),
            memberships: cold.memberships.clone(),
            options,
        }
    }

    /// Gives the options to a socket that has learnt the others from the kernel's part.
    pub(crate) fn apply(self, socket: &Description) {
        let mut cold = socket.cold.lock();
        for set in self.options.all() {
            cold.options.set(set.level, set.name, &set.value);
        }
        cold.memberships = self.memberships;
        socket
            .peek_offset
            .store(self.peek_offset, Ordering::Relaxed);
    }

    fn to_bytes(&self) -> Vec<u8> {
        // No socket is connected to port 0 of the unspecified address.
        let (ip, port, zone) = match self.remote {
            Some(SocketAddr::V4(addr)) => (addr.ip().to_ipv6_mapped(), addr.port(), 0),
            Some(SocketAddr::V6(addr)) => (*addr.ip(), addr.port(), addr.scope_id()),
            None => (Ipv6Addr::UNSPECIFIED, 0, 0),
        };
        let mut all = Vec::with_capacity(FIXED + OPTIONS_MAX);
        all.extend(self.inode.to_le_bytes());
        all.extend(port.to_le_bytes());
        all.extend(zone.to_le_bytes());
        all.extend(ip.octets());
        all.extend(self.peek_offset.to_le_bytes());
        all.extend((self.memberships.len() as u16).to_le_bytes());
        for one in &self.memberships {
            all.extend(wide(one.group).octets());
            all.extend(one.link.to_le_bytes());
            all.push(u8::from(one.is_exclude));
            all.extend((one.sources.len() as u16).to_le_bytes());
            all.extend(one.sources.iter().flat_map(|source| wide(*source).octets()));
        }
        let mut room = [0; OPTIONS_MAX];
        let len = self.options.write(&mut room);
        all.extend(&room[..len]);
        all
    }

    fn from_bytes(bytes: &[u8]) -> Option<Word> {
        let mut rest = bytes;
        let inode = u64::from_le_bytes(take(&mut rest)?);
        let port = u16::from_le_bytes(take(&mut rest)?);
        let zone = u32::from_le_bytes(take(&mut rest)?);
        let remote = match Ipv6Addr::from(take::<16>(&mut rest)?).to_canonical() {
            IpAddr::V6(ip) if ip.is_unspecified() && port == 0 => None,
            IpAddr::V4(ip) => Some(SocketAddr::new(ip.into(), port)),
            IpAddr::V6(ip) => Some(SocketAddrV6::new(ip, port, 0, zone).into()),
        };
        let peek_offset = i32::from_le_bytes(take(&mut rest)?);
        let count = usize::from(u16::from_le_bytes(take(&mut rest)?));
        let mut memberships = Vec::with_capacity(count.min(rest.len() / MEMBERSHIP));
        for _ in 0..count {
            memberships.push(membership(&mut rest)?);
        }
        Some(Word {
            inode,
            remote,
            peek_offset,
            memberships,
            options: Options::read(rest),
        })
    }
}

fn wide(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

fn take<const LEN: usize>(rest: &mut &[u8]) -> Option<[u8; LEN]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}

fn membership(rest: &mut &[u8]) -> Option<Membership> {
    let ip = |rest: &mut &[u8]| Some(Ipv6Addr::from(take::<16>(rest)?).to_canonical());
    let group = ip(rest)?;
    let link = u16::from_le_bytes(take(rest)?);
    let [mode] = take(rest)?;
    let count = u16::from_le_bytes(take(rest)?);
    let sources: Option<Vec<IpAddr>> = (0..count).map(|_| ip(rest)).collect();
    Some(Membership {
        group,
        link,
        is_exclude: mode != 0,
        sources: sources?,
    })
}

/// The constants that carry a word, with their number of bytes.
fn code_of(word: &Word) -> Vec<u8> {
    let bytes = word.to_bytes();
    let words = bytes.chunks(4).map(|chunk| {
        let mut four = [0; 4];
        four[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(four)
    });
    // A program finds 0 in the accumulator.
    let constants = [MARK, bytes.len() as u32]
        .into_iter()
        .chain(words)
        .chain([0]);
    constants.flat_map(|it| instruction(LOAD, it)).collect()
}

/// A filter behind the constants of a word.
fn with_filter(word: &[u8], filter: &[u8]) -> Vec<u8> {
    match filter.is_empty() {
        true => [word, &instruction(RETURN, ALL)].concat(),
        false => [word, filter].concat(),
    }
}

fn instruction(code: u16, constant: u32) -> [u8; INSTRUCTION] {
    let [a, b] = code.to_ne_bytes();
    let [c, d, e, f] = constant.to_ne_bytes();
    [a, b, 0, 0, c, d, e, f]
}

/// Splits a filter into the constants of a word and the filter behind them; either may be empty.
fn parts_of(code: &[u8]) -> (&[u8], &[u8]) {
    let mut constants = constants_of(code);
    let len = (constants.next() == Some(MARK)).then(|| constants.next());
    let Some(len) = len.flatten() else {
        return (&[], code);
    };
    // The mark, the length and the last 0 come beside the words.
    let count = (len as usize).div_ceil(4) + 3;
    let is_whole = constants_of(code).take(count).count() == count;
    match code.split_at_checked(count * INSTRUCTION) {
        Some((word, filter)) if is_whole && filter == instruction(RETURN, ALL) => (word, &[]),
        Some((word, filter)) if is_whole && !filter.is_empty() => (word, filter),
        _ => (&[], code),
    }
}

/// The constants that a filter begins with.
fn constants_of(code: &[u8]) -> impl Iterator<Item = u32> + '_ {
    code.chunks_exact(INSTRUCTION).map_while(|one| {
        let is_load = one.starts_with(&LOAD.to_ne_bytes());
        is_load.then_some(u32::from_ne_bytes(*one.last_chunk()?))
    })
}

/// Returns the word at the beginning of a filter.
fn word_in(code: &[u8]) -> Option<Word> {
    let (word, filter) = parts_of(code);
    let mut constants = constants_of(word).skip(1);
    let len = constants.next()? as usize;
    let mut bytes: Vec<u8> = constants.flat_map(u32::to_le_bytes).collect();
    bytes.truncate(len);
    let mut word = Word::from_bytes(&bytes)?;
    if !filter.is_empty() && !is_group_filter(filter) {
        word.options.set(ATTACH.0, ATTACH.1, filter);
    }
    Some(word)
}

impl Table {
    /// Connects a datagram socket that has just been received to its sender's peer.
    pub(crate) fn connect_received(&self, fd: i32, remote: SocketAddr) {
        if let Some(socket) = self.socket(fd)
            && let Some(Decided::Dgram(dgram)) = socket.decided()
        {
            *dgram.remote.lock() = Some(remote);
            dgram.gathering.on_connect(Some(remote));
            dgram.set_side(Side::Stack);
        }
    }
}

/// Leaves word in the kernel's part, which never blocks itself and is not connected; its filter
/// stays. One that is too long with a word goes without.
pub(crate) fn leave_word(
    kernel: &dyn Kernel,
    socket: &Description,
    part: Option<Descriptor>,
    word: &Word,
) {
    let Some(fd) = part.map(Descriptor::number) else {
        return;
    };
    let mode = i32::from(socket.is_nonblocking()).to_ne_bytes();
    let _ = kernel.setsockopt(fd, libc::SOL_SOCKET, MODE, &mode);
    // Another thread may set a filter.
    let _cold = socket.cold.lock();
    let now = code_at(kernel, fd);
    let code = with_filter(&code_of(word), parts_of(&now).1);
    if code.len() <= INSTRUCTIONS_MAX * INSTRUCTION {
        let _ = attach_filter(kernel, fd, &code);
    }
}

/// Gives the kernel socket `fd` this filter, of which nothing is none, behind the word that it
/// carries, or in its place if both are too long. Returns false, and does nothing, if it carries
/// none.
pub(crate) fn attach_behind_word(
    kernel: &dyn Kernel,
    fd: i32,
    filter: &[u8],
) -> Result<bool, Errno> {
    let now = code_at(kernel, fd);
    match parts_of(&now) {
        ([], _) => Ok(false),
        (word, _) => {
            let code = with_filter(word, filter);
            let is_short = code.len() <= INSTRUCTIONS_MAX * INSTRUCTION;
            // The filter counts for the program, the word only for a receiver.
            let code = if is_short { &code } else { filter };
            attach_filter(kernel, fd, code).map(|()| true)
        }
    }
}

/// Takes the word that was left in the kernel socket `fd`, and whether calls on it do not block.
pub(crate) fn take_word(kernel: &dyn Kernel, fd: i32) -> (bool, Option<Word>) {
    let mut mode = [0; 4];
    let told = kernel.getsockopt(fd, libc::SOL_SOCKET, MODE, &mut mode);
    (told.is_ok() && mode != [0; 4], read_word(kernel, fd))
}

pub(crate) fn read_word(kernel: &dyn Kernel, fd: i32) -> Option<Word> {
    word_in(&code_at(kernel, fd))
}

/// Returns the filter of the kernel socket `fd`.
fn code_at(kernel: &dyn Kernel, fd: i32) -> Vec<u8> {
    // The length is a number of instructions.
    if let Err(_) | Ok(0) = kernel.getsockopt(fd, ATTACH.0, ATTACH.1, &mut []) {
        return Vec::new();
    }
    // Room for all: another process may change it meanwhile.
    let mut code = vec![0; INSTRUCTIONS_MAX * INSTRUCTION];
    let count = kernel.getsockopt(fd, ATTACH.0, ATTACH.1, &mut code);
    code.truncate(count.unwrap_or(0) * INSTRUCTION);
    code
}

/// Returns whether the kernel's part has a filter that a program has set.
pub(crate) fn has_filter(kernel: &dyn Kernel, fd: i32) -> bool {
    program_filter_at(kernel, fd).is_some()
}

/// Returns the filter of the kernel's part that a program has set.
pub(crate) fn program_filter_at(kernel: &dyn Kernel, fd: i32) -> Option<Vec<u8>> {
    let code = code_at(kernel, fd);
    let (_, filter) = parts_of(&code);
    (!filter.is_empty() && !is_group_filter(filter)).then(|| filter.to_vec())
}

/// Removes the word from a socket that is the kernel's alone from now on, and what else the stack
/// has set on the kernel's part: the filter of groups and IP_FREEBIND.
pub(crate) fn forget_word(kernel: &dyn Kernel, socket: &Description, fd: i32) {
    let now = code_at(kernel, fd);
    let (word, filter) = parts_of(&now);
    if is_group_filter(filter) || !word.is_empty() && filter.is_empty() {
        let _ = kernel.setsockopt(fd, DETACH.0, DETACH.1, &[0; 4]);
    } else if !word.is_empty() {
        let _ = attach_filter(kernel, fd, filter);
    }
    let is_free = match word_in(&now) {
        Some(word) => word.options.has_freebind(),
        None => socket.cold.lock().options.has_freebind(),
    };
    let free = i32::from(is_free).to_ne_bytes();
    let _ = kernel.setsockopt(fd, libc::IPPROTO_IP, libc::IP_FREEBIND, &free);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::options::SO_SETFIB;
    use crate::socket::options::attaching::group_filter;

    fn round(word: &Word) {
        let filter = word.options.bytes(ATTACH.0, ATTACH.1).unwrap_or_default();
        let mut carried = word.clone();
        carried.options = Options::default();
        let untold = |set: &&Set| (set.level, set.name) != ATTACH;
        for set in word.options.all().iter().filter(untold) {
            carried.options.set(set.level, set.name, &set.value);
        }
        let read = word_in(&with_filter(&code_of(&carried), filter)).unwrap();
        assert_eq!((read.inode, read.remote), (word.inode, word.remote));
        assert_eq!(read.peek_offset, word.peek_offset);
        assert_eq!(read.memberships, word.memberships);
        assert_eq!(read.options.all(), word.options.all());
    }

    #[test]
    fn a_word_round_trips_through_a_socket_filters_constants() {
        let mut word = Word {
            inode: 0x1234_5678_9abc_def0,
            remote: None,
            peek_offset: -1,
            memberships: Vec::new(),
            options: Options::default(),
        };
        round(&word);
        for text in ["10.1.2.3:53", "[2001:db8::7]:65535", "[fe80::1%3]:1"] {
            word.remote = Some(text.parse().unwrap());
            round(&word);
        }
        word.memberships.push(Membership {
            group: "239.1.2.3".parse().unwrap(),
            link: 3,
            is_exclude: true,
            sources: vec!["10.1.1.1".parse().unwrap()],
        });
        word.options
            .set(libc::SOL_SOCKET, libc::SO_ZEROCOPY, &1i32.to_ne_bytes());
        // Only the stack has tables that a socket chooses.
        assert!(is_untold(libc::SOL_SOCKET, SO_SETFIB));
        word.options
            .set(libc::SOL_SOCKET, SO_SETFIB, &7i32.to_ne_bytes());
        round(&word);
        word.options
            .set(ATTACH.0, ATTACH.1, &instruction(RETURN, 7));
        round(&word);
        assert!(word_in(&[0; 10 * INSTRUCTION]).is_none());
        assert!(word_in(&code_of(&word)[..5 * INSTRUCTION]).is_none());
    }

    #[test]
    fn the_filter_of_groups_is_not_the_programs() {
        let word = Word {
            inode: 7,
            remote: None,
            peek_offset: -1,
            memberships: Vec::new(),
            options: Options::default(),
        };
        let code = with_filter(&code_of(&word), &group_filter(3));
        assert!(is_group_filter(parts_of(&code).1));
        assert!(word_in(&code).unwrap().options.is_empty());
        let plain = instruction(RETURN, 7);
        assert_eq!(parts_of(&plain), (&[][..], &plain[..]));
    }
}
