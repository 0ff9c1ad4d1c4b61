//! The last bytes that this process has written to a borrowed connection: if its owner is killed,
//! those that the owner had not taken are sent again.

use std::io::IoSlice;

use slipstack_mem::Lock;

/// Most bytes that are kept: with those in the ring (UNSENT_MAX of the channel) the buffer of the
/// connection that goes on has room for them.
const KEPT_MAX: usize = 32 << 10;

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub(crate) struct Sent(Lock<Written>);

#[derive(Debug, Default)]
struct Written {
    /// Set while all bytes since the pair was made have been counted.
    is_exact: bool,
    count: u64,
    last: Vec<u8>,
}

impl Sent {
    /// A pair has been made, for which nothing was written yet.
    pub(crate) fn begin(&self) {
        *self.0.lock() = Written {
            is_exact: true,
            ..Written::default()
        };
    }

    /// As [`Sent::begin`], in a program whose predecessor has left these bytes.
    pub(crate) fn go_on(&self, left: &[u8]) {
        if let Some((count, last)) = left.split_first_chunk() {
            *self.0.lock() = Written {
                is_exact: true,
                count: u64::from_le_bytes(*count),
                last: last.to_vec(),
            };
        }
    }

    /// Returns what this program leaves to the one that it becomes. `None`: it is not known how
    /// much has been written.
    pub(crate) fn leave(&self) -> Option<Vec<u8>> {
        let written = self.0.lock();
        let count = written.is_exact.then_some(written.count)?;
        Some([&count.to_le_bytes(), &*written.last].concat())
    }

    /// Bytes are being written that are not counted.
    pub(crate) fn lose(&self) {
        *self.0.lock() = Written::default();
    }

    /// Writes with `write` and counts what was written, while no other thread does.
    pub(crate) fn write<E>(
        &self,
        bufs: &[IoSlice<'_>],
        write: impl FnOnce() -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mut written = self.0.lock();
        let count = write()?;
        if written.is_exact {
            written.count += count as u64;
            let mut left = count;
            for buf in bufs {
                let part = &buf[..buf.len().min(left)];
                left -= part.len();
                written.last.extend_from_slice(part);
            }
            let more = written.last.len().saturating_sub(KEPT_MAX);
            written.last.drain(..more);
        }
        Ok(count)
    }

    /// The bytes after the first `taken` ones (modulo 2^32). `None`: they are not known.
    pub(crate) fn after(&self, taken: u32) -> Option<Vec<u8>> {
        let written = self.0.lock();
        let lost = (written.count as u32).wrapping_sub(taken) as usize;
        let at = written.last.len().checked_sub(lost)?;
        written.is_exact.then(|| written.last[at..].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sent: &Sent, bytes: &[u8], count: usize) {
        let bufs = [IoSlice::new(bytes)];
        let written = sent.write(&bufs, || Ok::<_, ()>(count));
        assert_eq!(written, Ok(count));
    }

    #[test]
    fn bytes_that_the_owner_has_not_taken_are_known() {
        let sent = Sent::default();
        sent.begin();
        write(&sent, b"abc", 3);
        write(&sent, b"defg", 2);
        assert_eq!(sent.after(1).unwrap(), b"bcde");
        assert_eq!(sent.after(5).unwrap(), b"");
        assert_eq!(sent.after(6), None, "more than there was");
        write(&sent, &[7; KEPT_MAX], KEPT_MAX);
        assert_eq!(sent.after(5).unwrap().len(), KEPT_MAX);
        assert_eq!(sent.after(4), None, "not kept");
    }

    #[test]
    fn a_program_goes_on_with_what_its_predecessor_has_left() {
        let (former, sent) = (Sent::default(), Sent::default());
        assert_eq!(former.leave(), None, "others have written");
        former.begin();
        write(&former, b"abc", 3);
        sent.go_on(&former.leave().unwrap());
        write(&sent, b"de", 2);
        assert_eq!(sent.after(1).unwrap(), b"bcde");
        assert_eq!(sent.after(5).unwrap(), b"");
        let damaged = Sent::default();
        damaged.go_on(b"short");
        assert_eq!(damaged.after(0), None);
    }

    #[test]
    fn nothing_is_known_after_bytes_that_were_not_counted() {
        let sent = Sent::default();
        assert_eq!(sent.after(0), None, "another process has made the pair");
        sent.begin();
        write(&sent, b"abc", 3);
        sent.lose();
        write(&sent, b"d", 1);
        assert_eq!(sent.after(1), None);
        assert_eq!(sent.after(0), None);
    }
}
