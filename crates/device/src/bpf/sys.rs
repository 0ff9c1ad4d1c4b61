//! The bpf(2) system call.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::btf::Functions;

const MAP_CREATE: i32 = 0;
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const PROG_LOAD: i32 = 5;
const MAP_FD_BY_ID: i32 = 14;
const INFO_BY_FD: i32 = 15;
const TYPES_LOAD: i32 = 18;
const LINK_CREATE: i32 = 28;

/// Map types and flags.
pub(crate) const MAP_HASH: u32 = 1;
pub(crate) const MAP_ARRAY: u32 = 2;
pub(crate) const MAP_PROGRAMS: u32 = 3;
pub(crate) const MAP_LRU_HASH: u32 = 9;
pub(crate) const MAP_NO_PREALLOC: u32 = 1;
pub(crate) const MAP_READ_ONLY: u32 = 1 << 3;
pub(crate) const MAP_MMAPABLE: u32 = 1 << 10;

pub(crate) const MAP_XSK: u32 = 17;

/// Program types.
pub(crate) const PROG_SOCKET_FILTER: u32 = 1;
pub(crate) const PROG_SCHED_CLS: u32 = 3;
pub(crate) const PROG_XDP: u32 = 6;
/// Beside a program's type: it takes frames in several pieces.
pub(crate) const PROG_IN_PIECES: u32 = 1 << 31;

/// Attachment point of a link: an interface's driver, or its ingress through tcx.
pub(crate) const ATTACH_XDP: u32 = 37;
pub(crate) const ATTACH_TCX_INGRESS: u32 = 46;
/// Mode in which a link attaches to [`ATTACH_XDP`]: in the kernel's general code, or in the driver.
pub(crate) const XDP_GENERIC: u32 = 2;
pub(crate) const XDP_NATIVE: u32 = 4;
/// `BPF_F_XDP_HAS_FRAGS`.
const HAS_FRAGS: u32 = 1 << 5;

/// `BPF_F_XDP_DEV_BOUND_ONLY`.
const ONE_DEVICE: u32 = 1 << 6;

/// Words of the largest `union bpf_attr` that is used here.
const ATTR_WORDS: usize = 16;
/// Bytes of `struct bpf_map_info` up to the fields used here.
const INFO_LEN: usize = 80;

/// `union bpf_attr`, filled in by field offset.
struct Attr([u64; ATTR_WORDS]);

impl Attr {
    fn new() -> Attr {
        Attr([0; ATTR_WORDS])
    }

    fn u32(mut self, offset: usize, value: u32) -> Attr {
        let shift = (offset % 8) * 8;
        self.0[offset / 8] |= u64::from(value) << shift;
        self
    }

    fn u64(mut self, offset: usize, value: u64) -> Attr {
        self.0[offset / 8] = value;
        self
    }

    fn fd(self, offset: usize, fd: BorrowedFd<'_>) -> Attr {
        self.u32(offset, fd.as_raw_fd().cast_unsigned())
    }

    fn bytes(self, offset: usize, bytes: &[u8]) -> Attr {
        self.u64(offset, bytes.as_ptr() as u64)
    }

    /// The call. Pointers in the attribute come from slices that the callers below keep alive and
    /// that have the lengths which the kernel takes from the map or from the attribute.
    fn call(self, command: i32) -> io::Result<i32> {
        let (at, len) = (self.0.as_ptr(), size_of_val(&self.0));
        // SAFETY: a live attribute of that length; see above for its pointers.
        let rc = unsafe { libc::syscall(libc::SYS_bpf, command, at, len) };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        i32::try_from(rc).map_err(io::Error::other)
    }

    fn call_fd(self, command: i32) -> io::Result<OwnedFd> {
        let fd = self.call(command)?;
        // SAFETY: a fresh descriptor without another owner; bpf(2) makes them close-on-exec.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn name_words(name: &str) -> [u64; 2] {
    let mut bytes = [0u8; 16];
    for (to, from) in bytes.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    let bytes = u128::from_ne_bytes(bytes);
    [bytes as u64, (bytes >> 64) as u64]
}

pub(crate) fn create_map(
    name: &str,
    kind: u32,
    key_len: u32,
    value_len: u32,
    entries: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    // The name is at offset 28, which is no multiple of 8.
    let [low, high] = name_words(name);
    let words = [
        low as u32,
        (low >> 32) as u32,
        high as u32,
        (high >> 32) as u32,
    ];
    let mut attr = Attr::new()
        .u32(0, kind)
        .u32(4, key_len)
        .u32(8, value_len)
        .u32(12, entries)
        .u32(16, flags);
    for (word, offset) in words.into_iter().zip((28..44).step_by(4)) {
        attr = attr.u32(offset, word);
    }
    attr.call_fd(MAP_CREATE)
}

/// A key of the only kind of hash that is used here, with its length.
pub(crate) type Key = [u8; KEY_LEN];
/// Two addresses, two ports, the protocol, and padding to whole words.
pub(crate) const KEY_LEN: usize = 40;
/// Bytes of a slot's number as a value.
pub(crate) const SLOT_LEN: u32 = 4;

/// Enters or replaces an element of a hash with such keys and 4-byte values.
pub(crate) fn update(map: BorrowedFd<'_>, key: &Key, value: u32) -> io::Result<()> {
    let value = value.to_ne_bytes();
    Attr::new()
        .fd(0, map)
        .bytes(8, key)
        .bytes(16, &value)
        .call(MAP_UPDATE)
        .map(drop)
}

/// The value of an element of a hash with such keys and 4-byte values.
pub(crate) fn lookup(map: BorrowedFd<'_>, key: &Key) -> io::Result<u32> {
    let mut value = [0u8; 4];
    Attr::new()
        .fd(0, map)
        .bytes(8, key)
        .u64(16, value.as_mut_ptr() as u64)
        .call(MAP_LOOKUP)?;
    Ok(u32::from_ne_bytes(value))
}

/// Reads the value of an element of any map. Both have the lengths that the map's description says.
pub(crate) fn look_up(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<()> {
    Attr::new()
        .fd(0, map)
        .bytes(8, key)
        .u64(16, value.as_mut_ptr() as u64)
        .call(MAP_LOOKUP)
        .map(drop)
}

pub(crate) fn delete(map: BorrowedFd<'_>, key: &Key) -> io::Result<()> {
    Attr::new()
        .fd(0, map)
        .bytes(8, key)
        .call(MAP_DELETE)
        .map(drop)
}

/// Description of a map: its number, and the lengths of keys, values and of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapInfo {
    pub kind: u32,
    pub id: u32,
    pub key_len: u32,
    pub value_len: u32,
    pub entries: u32,
}

pub(crate) fn map_info(map: BorrowedFd<'_>) -> io::Result<MapInfo> {
    let mut info = [0u32; INFO_LEN / 4];
    Attr::new()
        .fd(0, map)
        .u32(4, INFO_LEN as u32)
        .u64(8, info.as_mut_ptr() as u64)
        .call(INFO_BY_FD)?;
    let [kind, id, key_len, value_len, entries, ..] = info;
    Ok(MapInfo {
        kind,
        id,
        key_len,
        value_len,
        entries,
    })
}

/// A second descriptor of a map through which it can only be read.
pub(crate) fn read_only(map: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    map_by_id(map_info(map)?.id)
}

/// A descriptor of a map through which it can only be read.
pub(crate) fn map_by_id(id: u32) -> io::Result<OwnedFd> {
    Attr::new()
        .u32(0, id)
        .u32(8, MAP_READ_ONLY)
        .call_fd(MAP_FD_BY_ID)
}

/// Loads type information.
pub(crate) fn load_types(types: &[u8]) -> io::Result<OwnedFd> {
    let len = u32::try_from(types.len()).unwrap_or(u32::MAX);
    let attr = Attr::new().bytes(0, types).u32(16, len);
    attr.call_fd(TYPES_LOAD)
}

/// Things that only some programs have.
#[derive(Clone, Copy, Default)]
pub(crate) struct Extras<'a> {
    /// Functions of its own.
    pub(crate) functions: Option<&'a Functions>,
    /// The interface that alone it is for; 0 = any.
    pub(crate) device: u32,
}

/// Loads a program. The second value of an error is the verifier's log.
pub(crate) fn load_program(
    name: &str,
    kind: u32,
    attach: u32,
    code: &[u64],
    extras: Extras<'_>,
) -> Result<OwnedFd, (io::Error, String)> {
    let load = |log: &mut [u8]| {
        let [low, high] = name_words(name);
        let flags = [
            (kind & PROG_IN_PIECES != 0, HAS_FRAGS),
            (extras.device != 0, ONE_DEVICE),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set);
        let flags = flags.fold(0, |all, (_, flag)| all | flag);
        let mut attr = Attr::new()
            .u32(0, kind & !PROG_IN_PIECES)
            .u32(44, flags)
            .u32(4, u32::try_from(code.len()).unwrap_or(u32::MAX))
            .u64(8, code.as_ptr() as u64)
            // Functions of the kernel are for programs under the GPL.
            .bytes(16, b"Dual MIT/GPL\0")
            .u64(48, low)
            .u64(56, high)
            .u32(64, extras.device)
            .u32(68, attach);
        if let Some(functions) = extras.functions {
            attr = attr
                .fd(72, functions.types.as_fd())
                .u32(76, size_of_val(&functions.places[0]) as u32)
                .u64(80, functions.places.as_ptr() as u64)
                .u32(88, functions.places.len() as u32);
        }
        if !log.is_empty() {
            attr = attr
                .u32(24, 1)
                .u32(28, u32::try_from(log.len()).unwrap_or(0))
                .u64(32, log.as_mut_ptr() as u64);
        }
        attr.call_fd(PROG_LOAD)
    };
    load(&mut []).map_err(|error| {
        let mut log = vec![0; 64 * 1024];
        let _ = load(&mut log);
        let len = log.iter().position(|&b| b == 0).unwrap_or(log.len());
        (error, String::from_utf8_lossy(&log[..len]).into_owned())
    })
}

/// Attaches a program to the ingress of an interface for as long as the link is held.
pub(crate) fn link_tcx_ingress(program: BorrowedFd<'_>, index: u32) -> io::Result<OwnedFd> {
    link(program, index, ATTACH_TCX_INGRESS, 0)
}

/// Attaches a program to an interface's driver for as long as the link is held.
pub(crate) fn link_xdp(program: BorrowedFd<'_>, index: u32, mode: u32) -> io::Result<OwnedFd> {
    link(program, index, ATTACH_XDP, mode)
}

fn link(program: BorrowedFd<'_>, index: u32, at: u32, flags: u32) -> io::Result<OwnedFd> {
    Attr::new()
        .fd(0, program)
        .u32(4, index)
        .u32(8, at)
        .u32(12, flags)
        .call_fd(LINK_CREATE)
}

/// Sets an element of a map from numbers to descriptors.
pub(crate) fn update_fd(map: BorrowedFd<'_>, key: u32, fd: BorrowedFd<'_>) -> io::Result<()> {
    let (key, value) = (key.to_ne_bytes(), fd.as_raw_fd().to_ne_bytes());
    Attr::new()
        .fd(0, map)
        .bytes(8, &key)
        .bytes(16, &value)
        .call(MAP_UPDATE)
        .map(drop)
}
