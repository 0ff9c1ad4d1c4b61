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

/// A bit for each number: numbers are the process's, whichever part of it asks. Words that no
/// number has come to cost no memory.
type Numbers = [AtomicU64; NUMBERS_MAX / BITS];

static LISTED: Numbers = [const { AtomicU64::new(0) }; NUMBERS_MAX / BITS];
/// The numbers that serve an engine of this process, and no forked child: there they stay here when
/// they leave the list, until they are closed.
static OF_ENGINES: Numbers = [const { AtomicU64::new(0) }; NUMBERS_MAX / BITS];
/// Words from this one on have never listed a number.
static WORDS: AtomicUsize = AtomicUsize::new(0);

/// Returns the place of a number's word, and the number's bit.
fn place(number: RawFd) -> Option<(usize, u64)> {
    let number = usize::try_from(number).ok()?;
    (number < NUMBERS_MAX).then_some((number / BITS, 1 << (number % BITS)))
}

/// Whether a number is a descriptor of the library's own.
#[inline]
#[must_use]
pub fn is_private(number: RawFd) -> bool {
    place(number).is_some_and(|(index, bit)| LISTED[index].load(Ordering::Acquire) & bit != 0)
}

/// Whether a number is still open in this forked child because an engine of its parent's has it
/// ([`leave_to_parent`]). To a program it is not open, and should be closed when it says so.
#[inline]
#[must_use]
pub fn is_parents(number: RawFd) -> bool {
    place(number).is_some_and(|(index, bit)| {
        OF_ENGINES[index].load(Ordering::Acquire) & !LISTED[index].load(Ordering::Acquire) & bit
            != 0
    })
}

/// Returns the numbers of all descriptors of the library's own, in their order.
#[must_use]
pub fn privates() -> Vec<RawFd> {
    numbers_in(|index| LISTED[index].load(Ordering::Acquire))
}

/// Returns the numbers that [`is_parents`] names, in their order.
#[must_use]
pub fn parents() -> Vec<RawFd> {
    numbers_in(|index| {
        OF_ENGINES[index].load(Ordering::Acquire) & !LISTED[index].load(Ordering::Acquire)
    })
}

fn numbers_in(word: impl Fn(usize) -> u64) -> Vec<RawFd> {
    let mut all = Vec::new();
    for index in 0..WORDS.load(Ordering::Acquire) {
        let mut rest = word(index);
        while rest != 0 {
            all.push((index * BITS) as RawFd + rest.trailing_zeros().cast_signed());
            rest &= rest - 1;
        }
    }
    all
}

/// Puts a number into the list.
pub(super) fn list(fd: BorrowedFd<'_>) {
    if let Some((index, bit)) = place(fd.as_raw_fd()) {
        OF_ENGINES[index].fetch_and(!bit, Ordering::AcqRel);
        LISTED[index].fetch_or(bit, Ordering::AcqRel);
        WORDS.fetch_max(index + 1, Ordering::AcqRel);
    }
}

/// Takes a number from the list, before it is closed: after that another thread may be given it.
pub(super) fn forget(number: RawFd) {
    if let Some((index, bit)) = place(number)
        && (LISTED[index].load(Ordering::Relaxed) | OF_ENGINES[index].load(Ordering::Relaxed)) & bit
            != 0
    {
        OF_ENGINES[index].fetch_and(!bit, Ordering::AcqRel);
        LISTED[index].fetch_and(!bit, Ordering::AcqRel);
    }
}

/// Takes the descriptors of the parent's engines from the list, in a forked child: nothing here
/// uses them, and they should not be open for longer than in the parent.
pub fn leave_to_parent() {
    let words = LISTED.iter().zip(&OF_ENGINES);
    for (listed, of_engines) in words.take(WORDS.load(Ordering::Acquire)) {
        let parents = of_engines.load(Ordering::Acquire);
        if parents != 0 {
            listed.fetch_and(!parents, Ordering::AcqRel);
        }
    }
}

/// Does that for one descriptor.
pub(super) fn leave_one(number: RawFd) {
    if let Some((index, bit)) = place(number) {
        OF_ENGINES[index].fetch_or(bit, Ordering::AcqRel);
        LISTED[index].fetch_and(!bit, Ordering::AcqRel);
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

    /// As [`super::raised`], for a descriptor that serves an engine of this process or the way to
    /// its keeper. A forked child leaves it to its parent ([`leave_to_parent`]).
    #[must_use]
    pub fn of_engine(fd: OwnedFd) -> PrivateFd {
        let raised = super::raised(fd);
        if let Some((index, bit)) = place(raised.as_raw_fd()) {
            OF_ENGINES[index].fetch_or(bit, Ordering::AcqRel);
        }
        raised
    }

    /// Returns the descriptor for an owner that lists it in its own way, or gives it away.
    #[must_use]
    pub fn unlisted(self) -> OwnedFd {
        let PrivateFd { listing, fd } = self;
        drop(listing);
        fd
    }
}

/// As [`PrivateFd::of_engine`].
impl From<OwnedFd> for PrivateFd {
    fn from(fd: OwnedFd) -> PrivateFd {
        PrivateFd::of_engine(fd)
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
    fn a_forked_child_lists_what_serves_no_engine_of_its_parent() {
        let (engines, other) = rustix::pipe::pipe().unwrap();
        let (engines, other) = (PrivateFd::of_engine(engines), raised(other));
        let numbers = [engines.as_raw_fd(), other.as_raw_fd()];
        assert_eq!(numbers.map(is_private), [true, true]);
        leave_to_parent();
        assert_eq!(numbers.map(is_private), [false, true]);
        assert_eq!(numbers.map(is_parents), [true, false]);
        assert!(parents().contains(&numbers[0]) && !parents().contains(&numbers[1]));
        drop(engines);
        assert!(!is_parents(numbers[0]));
    }

    #[test]
    fn numbers_that_cannot_be_are_not_listed() {
        assert!(![-1, RawFd::MIN, RawFd::MAX].into_iter().any(is_private));
    }
}
