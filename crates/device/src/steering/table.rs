//! The two copies of the steering table. The eBPF programs read an array map, which cannot be
//! mapped through a read-only descriptor, so engines read a copy in a memory file instead. The
//! keeper stores every word in both. A simulation has only the copy.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, SealFlags};
use slipstack_mem::PrivateFd;

use super::layout;
use super::raw::{MAPPED, Table};
use crate::bpf::sys;

/// The mirror that processes read, and for the keeper the map that the programs read.
#[derive(Debug)]
pub(crate) struct Tables {
    mirror: Table,
    mirror_fd: PrivateFd,
    programs: Option<ProgramTable>,
    is_writable: bool,
}

#[derive(Debug)]
struct ProgramTable {
    table: Table,
    map: PrivateFd,
}

/// The right to store.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    mirror: &'a Table,
    programs: Option<&'a Table>,
}

impl Tables {
    pub(crate) fn create() -> io::Result<Tables> {
        let len = layout::LEN as u32;
        let flags = sys::MAP_MMAPABLE;
        let map = sys::create_map("slip_steering", sys::MAP_ARRAY, 4, len, 1, flags)?;
        Tables::open_writable(map, mirror_file()?)
    }

    /// A table that no program of the kernel reads.
    pub(crate) fn create_apart() -> io::Result<Tables> {
        let mirror_fd = mirror_file()?;
        Ok(Tables {
            mirror: Table::map(mirror_fd.as_fd(), true)?,
            mirror_fd: mirror_fd.into(),
            programs: None,
            is_writable: true,
        })
    }

    pub(crate) fn open_writable(map: OwnedFd, mirror_fd: OwnedFd) -> io::Result<Tables> {
        let table = Table::map(map.as_fd(), true)?;
        Ok(Tables {
            mirror: Table::map(mirror_fd.as_fd(), true)?,
            mirror_fd: mirror_fd.into(),
            programs: Some(ProgramTable {
                table,
                map: map.into(),
            }),
            is_writable: true,
        })
    }

    pub(crate) fn open_read_only(mirror_fd: OwnedFd) -> io::Result<Tables> {
        let seals = rustix::fs::fcntl_get_seals(&mirror_fd)?;
        let len = rustix::fs::fstat(&mirror_fd)?.st_size;
        if !seals.contains(SealFlags::SHRINK) || len != MAPPED as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Tables {
            mirror: Table::map(mirror_fd.as_fd(), false)?,
            mirror_fd: mirror_fd.into(),
            programs: None,
            is_writable: false,
        })
    }

    /// Returns the table to look things up in.
    #[inline]
    pub(crate) fn read(&self) -> &Table {
        &self.mirror
    }

    pub(crate) fn writer(&self) -> Option<Writer<'_>> {
        self.is_writable.then_some(Writer {
            mirror: &self.mirror,
            programs: self.programs.as_ref().map(|it| &it.table),
        })
    }

    /// The map that programs use; the keeper's only.
    pub(crate) fn map(&self) -> Option<BorrowedFd<'_>> {
        Some(self.programs.as_ref()?.map.as_fd())
    }

    pub(crate) fn mirror_fd(&self) -> BorrowedFd<'_> {
        self.mirror_fd.as_fd()
    }

    /// A descriptor of the copy that can be mapped for reading only.
    pub(crate) fn read_only_mirror(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.mirror_fd.as_raw_fd());
        let file = OpenOptions::new().read(true).open(path)?;
        Ok(file.into())
    }
}

fn mirror_file() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("slipstack-steering", flags)?;
    rustix::fs::ftruncate(&file, MAPPED as u64)?;
    // Another user cannot turn a read-only descriptor into a writable one.
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

impl Writer<'_> {
    /// The programs' copy comes last: an engine never knows less than the programs that steer its
    /// frames.
    fn both(self, store: impl Fn(&Table)) {
        store(self.mirror);
        if let Some(programs) = self.programs {
            store(programs);
        }
    }

    pub(crate) fn u8(self, offset: usize, value: u8) {
        self.both(|table| table.store_u8(offset, value));
    }

    pub(crate) fn u16(self, offset: usize, value: u16) {
        self.both(|table| table.store_u16(offset, value));
    }

    pub(crate) fn u32(self, offset: usize, value: u32) {
        self.both(|table| table.store_u32(offset, value));
    }

    pub(crate) fn u64(self, offset: usize, value: u64) {
        self.both(|table| table.store_u64(offset, value));
    }
}
