//! The library's own descriptors: out of the program's way, and listed while they are open.
//!
//! A program may close every number it finds (a daemon that begins, a child before its exec). The
//! libraries with a C interface ask [`is_private`] and leave out those that are listed here.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const BITS: usize = u64::BITS as usize;
/// Numbers from here on are not listed (the kernel's usual fs.nr_open).
const NUMBERS_MAX: usize = 1 << 20;

/// The listed numbers of this process, a bit for each: numbers are the process's, whichever part of
/// it asks. Words that no number has come to cost no memory.
static LISTED: [AtomicU64; NUMBERS_MAX / BITS] = [const { AtomicU64::new(0) }; NUMBERS_MAX / BITS];
/// Words from this one on have never listed a number.
static WORDS: AtomicUsize = AtomicUsize::new(0);

/// Returns the word of a number, its place and the number's bit.
fn place(number: RawFd) -> Option<(usize, &'static AtomicU64, u64)> {
    let number = usize::try_from(number).ok()?;
    let word = LISTED.get(number / BITS)?;
    Some((number / BITS, word, 1 << (number % BITS)))
}

/// Whether a number is a descriptor of the library's own.
#[inline]
#[must_use]
pub fn is_private(number: RawFd) -> bool {
    place(number).is_some_and(|(_, word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

/// Returns the numbers of all descriptors of the library's own, in their order.
#[must_use]
pub fn privates() -> Vec<RawFd> {
    let words = LISTED.iter().take(WORDS.load(Ordering::Acquire));
    let mut all = Vec::new();
    for (index, word) in words.enumerate() {
        let mut rest = word.load(Ordering::Acquire);
        while rest != 0 {
            all.push((index * BITS) as RawFd + rest.trailing_zeros().cast_signed());
            rest &= rest - 1;
        }
    }
    all
}

/// Puts a number into the list.
pub(super) fn list(fd: BorrowedFd<'_>) {
    if let Some((index, word, bit)) = place(fd.as_raw_fd()) {
        word.fetch_or(bit, Ordering::AcqRel);
        WORDS.fetch_max(index + 1, Ordering::AcqRel);
    }
}

/// Takes a number from the list, before it is closed: after that another thread may be given it.
pub(super) fn forget(number: RawFd) {
    if let Some((_, word, bit)) = place(number)
        && word.load(Ordering::Relaxed) & bit != 0
    {
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}

/// A number in the list.
#[derive(Debug)]
struct Listing(RawFd);

impl Listing {
    fn new(fd: BorrowedFd<'_>) -> Listing {
        list(fd);
        Listing(fd.as_raw_fd())
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        forget(self.0);
    }
}

/// A descriptor of the library's own. It has a high number if the limit allows it, and is listed
/// until it is closed.
#[derive(Debug)]
pub struct PrivateFd {
    // Dropped first.
    listing: Listing,
    fd: OwnedFd,
}

impl PrivateFd {
    /// Lists a descriptor that is where it stays.
    pub(super) fn list(fd: OwnedFd) -> PrivateFd {
        PrivateFd {
            listing: Listing::new(fd.as_fd()),
            fd,
        }
    }

    /// Returns the descriptor for an owner that lists it in its own way, or gives it away.
    #[must_use]
    pub fn unlisted(self) -> OwnedFd {
        let PrivateFd { listing, fd } = self;
        drop(listing);
        fd
    }
}

impl From<OwnedFd> for PrivateFd {
    fn from(fd: OwnedFd) -> PrivateFd {
        super::raised(fd)
    }
}

impl Deref for PrivateFd {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.fd
    }
}

impl AsFd for PrivateFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for PrivateFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// A file that is written.
impl io::Write for PrivateFd {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.fd, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::raised;
    use super::*;

    #[test]
    fn a_descriptor_is_listed_until_it_is_closed_or_given_away() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let (reader, writer) = (raised(reader), raised(writer));
        let numbers = [reader.as_raw_fd(), writer.as_raw_fd()];
        assert!(numbers.into_iter().all(is_private));
        let all = privates();
        assert!(all.is_sorted() && numbers.iter().all(|number| all.contains(number)));
        drop(reader);
        let given = writer.unlisted();
        assert_eq!(given.as_raw_fd(), numbers[1]);
        assert!(!is_private(numbers[1]));
    }

    #[test]
    fn numbers_that_cannot_be_are_not_listed() {
        assert!(![-1, RawFd::MIN, RawFd::MAX].into_iter().any(is_private));
    }
}
