//! A sealed memory file and checked access to it.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MprotectFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::descriptor::PrivateFd;
use crate::raw::{Line, Mapping, RawLines, RawSlice, RawSpace, View};

/// The page size this code is laid out for.
pub const PAGE: usize = 4096;

const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Shared memory backed by a sealed file. Clones share one mapping.
#[derive(Clone, Debug)]
pub struct Region {
    view: View,
    mapping: Arc<Mapping>,
    file: Arc<PrivateFd>,
}

impl Region {
    /// Makes a zeroed, sparse region of `len` bytes (rounded up to pages) that no process can
    /// resize.
    pub fn create(name: &str, len: usize) -> io::Result<Region> {
        let len = len.next_multiple_of(PAGE);
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        lengthen(&file, len as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Region::map(file, len)
    }

    /// Maps a region that someone else made. A file that could shrink under us is refused, as is
    /// one longer than `len_max`.
    pub fn open(file: OwnedFd, len_max: usize) -> io::Result<Region> {
        let len = sealed_len(&file)?;
        if len > len_max || !len.is_multiple_of(PAGE) {
            return Err(wrong_length());
        }
        Region::map(file, len)
    }

    /// As [`Region::open`], for reading alone: a store through it ends the process by SIGSEGV.
    pub fn open_read_only(file: OwnedFd, len_max: usize) -> io::Result<Region> {
        let len = sealed_len(&file)?;
        if len > len_max || !len.is_multiple_of(PAGE) {
            return Err(wrong_length());
        }
        Region::map_for(file, len, MprotectFlags::READ)
    }

    /// Maps the first `len` bytes of a memory file that another process made, which need not be a
    /// multiple of pages. A file that could shrink is refused, as is one that is shorter.
    pub fn open_foreign(file: OwnedFd, len: usize) -> io::Result<Region> {
        if len == 0 || sealed_len(&file)? < len {
            return Err(wrong_length());
        }
        Region::map(file, len)
    }

    fn map(file: OwnedFd, len: usize) -> io::Result<Region> {
        Region::map_for(file, len, MprotectFlags::READ | MprotectFlags::WRITE)
    }

    fn map_for(file: OwnedFd, len: usize, access: MprotectFlags) -> io::Result<Region> {
        let file = PrivateFd::of_engine(file);
        let mapping = Mapping::shared(file.as_fd(), len, access)?;
        Ok(Region {
            view: mapping.view(),
            mapping: Arc::new(mapping),
            file: Arc::new(file),
        })
    }

    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.view.len()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A descriptor of its own for passing on.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.file.try_clone()
    }

    /// Returns whether both are the same mapping.
    pub fn is_same(&self, other: &Region) -> bool {
        Arc::ptr_eq(&self.mapping, &other.mapping)
    }

    /// Excludes the mapping from forked children: they fault instead of disturbing it, and it does
    /// not count against their RLIMIT_AS.
    pub fn dont_fork(&self) -> io::Result<()> {
        self.mapping
            .advise(0, self.view.len(), Advice::LinuxDontFork)
    }

    /// Lets this process, in all clones of the region, store to whole pages or not: a store to one
    /// that takes none ends the process by SIGSEGV.
    pub fn set_writable(&self, offset: usize, len: usize, is_writable: bool) -> io::Result<()> {
        let access = match is_writable {
            true => MprotectFlags::READ | MprotectFlags::WRITE,
            false => MprotectFlags::READ,
        };
        self.mapping.protect(offset, len, access)
    }

    /// Gives whole pages back to the system; they read as zero afterwards.
    pub fn punch(&self, offset: usize, len: usize) -> io::Result<()> {
        self.mapping.punch(offset, len)
    }

    /// Returns the offset of `bytes` if all of them are in this mapping of the region.
    pub fn offset_of(&self, bytes: &[u8]) -> Option<usize> {
        self.view.offset_of(bytes.as_ptr(), bytes.len())
    }

    #[inline]
    pub fn u16(&self, offset: usize) -> Option<&AtomicU16> {
        self.view.u16(offset)
    }

    #[inline]
    pub fn u32(&self, offset: usize) -> Option<&AtomicU32> {
        self.view.u32(offset)
    }

    #[inline]
    pub fn u64(&self, offset: usize) -> Option<&AtomicU64> {
        self.view.u64(offset)
    }

    #[inline]
    pub fn slice(&self, offset: usize, len: usize) -> Option<RawSlice<'_>> {
        self.view.slice(offset, len)
    }

    #[inline]
    pub fn space(&self, offset: usize, len: usize) -> Option<RawSpace<'_>> {
        self.view.space(offset, len)
    }

    /// Copies shared bytes out; `false` and nothing done when out of bounds.
    #[inline]
    pub fn read_into(&self, offset: usize, out: &mut [u8]) -> bool {
        match self.view.slice(offset, out.len()) {
            Some(slice) => slice.copy_to(out) == out.len(),
            None => false,
        }
    }

    /// Copies bytes in; `false` and nothing done when out of bounds.
    #[inline]
    pub fn write_from(&self, offset: usize, bytes: &[u8]) -> bool {
        self.view.write(offset, bytes)
    }

    /// Copies bytes of other shared memory in; `false` and nothing done when out of bounds.
    #[inline]
    pub fn write_shared(&self, offset: usize, bytes: RawSlice<'_>) -> bool {
        let space = self.view.space(offset, bytes.len());
        space.is_some_and(|space| space.copy_raw(bytes))
    }

    /// Copies inside the region; `false` and nothing done when out of bounds.
    #[inline]
    pub fn copy_within(&self, from: usize, to: usize, len: usize) -> bool {
        self.view.copy_within(from, to, len)
    }
}

/// Length of a memory file that cannot shrink.
fn sealed_len(file: &OwnedFd) -> io::Result<usize> {
    let seals = rustix::fs::fcntl_get_seals(file)?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "region is not sealed against shrinking",
        ));
    }
    match usize::try_from(rustix::fs::fstat(file)?.st_size) {
        Ok(len) if len > 0 => Ok(len),
        _ => Err(wrong_length()),
    }
}

fn wrong_length() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "region has a wrong length")
}

/// A run of cache lines in a region, checked once when it is made.
#[derive(Clone, Debug)]
pub struct Lines {
    lines: RawLines,
    region: Region,
}

impl Lines {
    /// `None` when the lines do not fit the region or are not aligned.
    pub fn new(region: &Region, offset: usize, count: usize) -> Option<Lines> {
        Some(Lines {
            lines: region.view.lines(offset, count)?,
            region: region.clone(),
        })
    }

    #[inline]
    pub fn count(&self) -> usize {
        self.lines.count()
    }

    pub fn region(&self) -> &Region {
        &self.region
    }

    /// `N` lines from `index` on, if they are all there.
    #[inline]
    pub fn find<const N: usize>(&self, index: usize) -> Option<&[Line; N]> {
        self.lines.array(index)
    }

    /// Panics out of bounds, like indexing a slice: callers check untrusted values first.
    #[inline]
    #[track_caller]
    pub fn line(&self, index: usize) -> &Line {
        match self.lines.array::<1>(index) {
            Some([line]) => line,
            None => panic!("line {index} out of bounds"),
        }
    }
}

/// A private page that reads as zero in forked children, by which a child recognises itself.
#[derive(Debug)]
pub struct WipedPage {
    mapping: Mapping,
}

impl WipedPage {
    pub fn new() -> io::Result<WipedPage> {
        let mapping = Mapping::anonymous(PAGE)?;
        mapping.advise(0, PAGE, Advice::LinuxWipeOnFork)?;
        Ok(WipedPage { mapping })
    }

    pub fn store(&self, value: u64) {
        if let Some(word) = self.mapping.view().u64(0) {
            word.store(value, Ordering::Release);
        }
    }

    /// Returns the stored value; zero in a child forked since.
    pub fn load(&self) -> u64 {
        self.mapping
            .view()
            .u64(0)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }
}

/// Gives a memory file its length. RLIMIT_FSIZE, which is about a program's own files, would end
/// the program with SIGXFSZ: it is lifted meanwhile, and where that may not be the length is
/// refused.
fn lengthen(file: &OwnedFd, len: u64) -> io::Result<()> {
    let limit = getrlimit(Resource::Fsize);
    let is_short = |bound: Option<u64>| bound.is_some_and(|bound| bound < len);
    if !is_short(limit.current) {
        return Ok(rustix::fs::ftruncate(file, len)?);
    }
    let maximum = limit.maximum.map(|bound| bound.max(len));
    let current = Some(len);
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).map_err(|_| rustix::io::Errno::FBIG)?;
    let lengthened = rustix::fs::ftruncate(file, len);
    setrlimit(Resource::Fsize, limit)?;
    Ok(lengthened?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_shared_through_its_descriptor() {
        let ours = Region::create("test", 3 * PAGE).unwrap();
        let theirs = Region::open(ours.try_clone_fd().unwrap(), 1 << 20).unwrap();
        ours.u64(64).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(theirs.u64(64).unwrap().load(Ordering::Relaxed), 7);
        assert!(ours.write_from(PAGE - 2, b"abcd"));
        let mut out = [0; 4];
        assert!(theirs.read_into(PAGE - 2, &mut out));
        assert_eq!(&out, b"abcd");
    }

    #[test]
    fn a_region_is_in_no_core_file() {
        let region = Region::create("not-dumped", 64 << 20).unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let entry = maps.split("memfd:not-dumped").nth(1).unwrap();
        let mut flags = entry
            .lines()
            .find_map(|line| line.strip_prefix("VmFlags:"))
            .unwrap()
            .split(' ');
        assert!(flags.any(|flag| flag == "dd"));
        drop(region);
    }

    #[test]
    fn accesses_out_of_bounds_or_misaligned_are_refused() {
        let region = Region::create("test", PAGE).unwrap();
        assert!(region.u64(PAGE).is_none());
        assert!(region.u64(4).is_none());
        assert!(region.u32(usize::MAX - 3).is_none());
        assert!(region.slice(PAGE - 1, 2).is_none());
        assert!(!region.write_from(PAGE, b"x"));
        assert!(Lines::new(&region, 0, 65).is_none());
        assert!(Lines::new(&region, 32, 1).is_none());
    }

    #[test]
    fn an_unsealed_or_oversized_file_is_refused() {
        let file = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, PAGE as u64).unwrap();
        assert!(Region::open(file, 1 << 20).is_err());
        let region = Region::create("test", 2 * PAGE).unwrap();
        assert!(Region::open(region.try_clone_fd().unwrap(), PAGE).is_err());
    }

    #[test]
    fn a_page_that_fork_wipes_keeps_its_contents_in_the_parent() {
        let page = WipedPage::new().unwrap();
        page.store(9);
        assert_eq!(page.load(), 9);
    }
}
