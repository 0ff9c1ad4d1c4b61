//! One ring of performance events: those of one thread, and of what it makes, on one processor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::descriptor::{PrivateFd, raised};

/// The pages of a ring behind the first, which describes it.
const DATA_PAGES: usize = 4;
/// Places in the first page (`struct perf_event_mmap_page`).
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;
/// Type and size of a record.
const HEADER: usize = 8;

/// `struct perf_event_attr` by its words of 64 bits.
const ATTRIBUTE_WORDS: usize = 16;
const SOFTWARE: u64 = 1;
const DUMMY: u64 = 9;
/// Each record ends with its time.
const WITH_TIME: u64 = 1 << 2;
/// inherit, exclude_kernel, exclude_hv, comm, task, watermark, sample_id_all, comm_exec.
const FLAGS: u64 = 1 << 1 | 1 << 5 | 1 << 6 | 1 << 9 | 1 << 13 | 1 << 14 | 1 << 18 | 1 << 24;
const CLOEXEC: usize = 8;

/// Returns how many processors there may be.
pub fn processors() -> i32 {
    // SAFETY: takes no pointer.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    i32::try_from(count).unwrap_or(1).max(1)
}

fn page() -> usize {
    // SAFETY: takes no pointer.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

#[derive(Debug)]
pub struct Ring {
    fd: PrivateFd,
    at: NonNull<u8>,
    page: usize,
    /// The process that has the mapping, which a fork does not copy.
    owner: u32,
}

// SAFETY: the mapping has one reader at a time, which `Trace`'s owner sees to with a lock.
unsafe impl Send for Ring {}
// SAFETY: as above; the words that the kernel writes are read atomically.
unsafe impl Sync for Ring {}

impl Ring {
    pub fn open(task: i32, processor: i32) -> io::Result<Ring> {
        let mut attribute = [0u64; ATTRIBUTE_WORDS];
        attribute[0] = SOFTWARE | (size_of_val(&attribute) as u64) << 32;
        attribute[1] = DUMMY;
        attribute[3] = WITH_TIME;
        attribute[5] = FLAGS;
        // Wakes for each record.
        attribute[6] = 1;
        let group = -1;
        // SAFETY: the attribute is as long as it says.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                attribute.as_ptr(),
                task,
                processor,
                group,
                CLOEXEC,
            )
        };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for us.
        let fd = raised(unsafe { OwnedFd::from_raw_fd(fd) });
        let page = page();
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let len = page * (1 + DATA_PAGES);
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new mapping of a descriptor of ours.
        let at = unsafe { libc::mmap(anywhere, len, access, kind, fd.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let owner = std::process::id();
        Ok(Ring {
            fd,
            at,
            page,
            owner,
        })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn is_here(&self) -> bool {
        self.owner == std::process::id()
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: an aligned word in the first page, which lives as long as the ring.
        let word = unsafe { self.at.as_ptr().add(at) };
        // SAFETY: as above; only atomic accesses are made to it.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    /// Copies bytes at a position of the ring, which may be around its end.
    fn copy(&self, from: u64, to: &mut [u8]) {
        let size = self.page * DATA_PAGES;
        for (index, byte) in to.iter_mut().enumerate() {
            let at = (from as usize).wrapping_add(index) % size;
            // SAFETY: inside of the pages behind the first.
            let place = unsafe { self.at.as_ptr().add(self.page + at) };
            // SAFETY: as above; the kernel does not write between tail and head.
            *byte = unsafe { place.read_volatile() };
        }
    }

    /// Shows each record that waits, and takes it off; none in a forked child.
    pub fn take(&self, mut each: impl FnMut(&[u8])) {
        if !self.is_here() {
            return;
        }
        let head = self.word(HEAD_AT).load(Ordering::Acquire);
        let mut tail = self.word(TAIL_AT).load(Ordering::Relaxed);
        let mut record = Vec::new();
        while tail < head {
            let mut header = [0; HEADER];
            self.copy(tail, &mut header);
            let len = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if len < HEADER {
                tail = head;
                break;
            }
            record.resize(len, 0);
            self.copy(tail, &mut record);
            each(&record);
            tail += len as u64;
        }
        self.word(TAIL_AT).store(tail, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.is_here() {
            let len = self.page * (1 + DATA_PAGES);
            // SAFETY: our own mapping, to which nothing points any more.
            unsafe { libc::munmap(self.at.as_ptr().cast(), len) };
        }
    }
}
