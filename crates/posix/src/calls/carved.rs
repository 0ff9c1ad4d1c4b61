//! Memory of the stack that a program fills before it chooses the connection for the bytes.

use std::io::IoSlice;
use std::sync::Arc;

use slipstack_channel as channel;

use crate::attachment::Attachment;
use crate::errno::Errno;
use crate::outcome::Outcome;
use crate::process::Process;

/// The most bytes of one piece.
pub const CARVED_MAX: usize = channel::CARVED_MAX;

/// The flag of a send whose bytes are in carved pieces and stay unchanged: the kernel's
/// MSG_SPLICE_PAGES, which no program may pass to it. Other bytes are copied.
pub(crate) const LENT: i32 = 0x0800_0000;

/// A piece of memory that frames are gathered from. It is free again when this is dropped and its
/// sent bytes are acknowledged.
#[derive(Debug)]
pub struct Carved {
    attachment: Arc<Attachment>,
    piece: Option<channel::Carved>,
}

impl Carved {
    /// Returns its place.
    pub fn space(&self) -> libc::iovec {
        let space = self
            .piece
            .as_ref()
            .map(|it| self.attachment.program.carved_space(it));
        space.map_or(crate::calls::in_place::NO_BYTES, |space| space.as_iovec())
    }

    /// Copies bytes to offset `at`; `false`: there is no room for all of them.
    pub fn fill(&self, at: usize, bytes: &[u8]) -> bool {
        let piece = self.piece.as_ref();
        piece.is_some_and(|it| self.attachment.program.fill_carved(it, at, bytes))
    }

    /// Copies the first bytes out.
    pub fn read(&self, out: &mut [u8]) {
        if let Some(piece) = &self.piece {
            self.attachment.program.read_carved(piece, out);
        }
    }

    /// Forgets the piece in a forked child, where it belongs to the parent and is not mapped.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Carved {
    fn drop(&mut self) {
        if let Some(piece) = self.piece.take() {
            self.attachment.program.give_carved_back(piece);
        }
    }
}

impl Process {
    /// Memory for `len` bytes, at most [`CARVED_MAX`].
    pub fn carve(&self, len: usize) -> Result<Carved, Errno> {
        let attachment = self.attached()?;
        let piece = Some(attachment.program.carve(len).ok_or(Errno::ENOBUFS)?);
        Ok(Carved { attachment, piece })
    }

    /// As `writev`, for bytes in carved pieces: on a connection of the same engine they are not
    /// copied.
    pub fn send_carved(&self, fd: i32, bufs: &[IoSlice<'_>]) -> Outcome<usize> {
        self.sendmsg(fd, bufs, None, &[], LENT)
    }
}
