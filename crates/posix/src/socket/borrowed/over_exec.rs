//! The state of a pair's end that a program leaves to the one that it becomes (`exec`): `1` if all
//! that comes is passed on without requests, otherwise `0`, then `x` if this process does not go on
//! with the connection should its owner be killed, `r` if the kernel counts what is read, and `s`
//! with the number of a file that has what [`super::Sent::leave`] returns.

use slipstack_channel::control::read_bytes;
use slipstack_mem::Descriptor;

use super::Borrowed;
use crate::kernel::Kernel;

/// See the [module documentation](self).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftState {
    is_streaming: bool,
    is_left_to_others: bool,
    are_reads_counted: bool,
    sent: Option<Vec<u8>>,
}

impl LeftState {
    /// Returns the text. `file`: the number of that with the written bytes.
    pub(crate) fn text(it: &Borrowed, file: Option<i32>) -> String {
        let streams = u8::from(it.is_streaming());
        let goes_on = it.awaits_end() && !it.was_cut() && !it.is_left_to_others();
        let stays = if goes_on { "" } else { "x" };
        let reads = if it.reads.are_counted() { "r" } else { "" };
        let sent = file.map_or_else(String::new, |number| format!("s{number}"));
        format!("{streams}{stays}{reads}{sent}")
    }

    /// Reads the text, and closes the file that it names.
    pub(crate) fn read(text: &str) -> LeftState {
        let (letters, file) = match text.split_once('s') {
            Some((letters, file)) => (letters, read_file(file)),
            None => (text, None),
        };
        LeftState {
            is_streaming: letters.starts_with('1'),
            is_left_to_others: letters.contains('x'),
            are_reads_counted: letters.contains('r'),
            sent: file,
        }
    }

    pub(crate) fn apply(self, it: &Borrowed) {
        if self.is_streaming {
            it.note_streaming();
        }
        if self.is_left_to_others {
            it.leave_to_others();
        }
        if self.are_reads_counted {
            it.reads.go_on();
        }
        if let Some(left) = self.sent {
            it.sent.go_on(&left);
        }
    }

    /// The pair under number `fd` is one of the kernel's for this program.
    pub(crate) fn give_up(&self, kernel: &dyn Kernel, fd: i32) {
        if self.are_reads_counted {
            let reads = super::Reads::default();
            reads.go_on();
            reads.end(kernel, Some(fd));
        }
    }
}

fn read_file(number: &str) -> Option<Vec<u8>> {
    let number = Descriptor::new(number.parse().ok()?)?;
    let file = number.as_fd().try_clone_to_owned().ok()?;
    number.close();
    read_bytes(file).ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use slipstack_channel::control::text_file;

    use super::*;

    fn back(it: &Borrowed, file: Option<i32>) -> LeftState {
        LeftState::read(&LeftState::text(it, file))
    }

    #[test]
    fn a_program_knows_what_its_predecessor_knew() {
        let it = Borrowed::new(1, None, None, Some(2));
        assert_eq!(back(&it, None), LeftState::default());
        it.note_streaming();
        it.reads.go_on();
        let file = text_file(b"bytes").unwrap().into_raw_fd();
        let state = back(&it, Some(file));
        assert!(state.is_streaming && state.are_reads_counted && !state.is_left_to_others);
        assert_eq!(state.sent.as_deref(), Some(&b"bytes"[..]));
        assert!(
            Descriptor::new(file).is_none_or(|it| rustix::io::fcntl_getfd(it.as_fd()).is_err())
        );
    }

    #[test]
    fn a_connection_that_could_not_come_does_not_come_to_the_next_program() {
        let it = Borrowed::new(1, None, None, Some(2));
        it.note_cut();
        let next = Borrowed::new(1, None, None, Some(2));
        back(&it, None).apply(&next);
        assert!(next.is_left_to_others() && back(&next, None).is_left_to_others);
    }
}
