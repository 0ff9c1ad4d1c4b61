//! EVFILT_READ and EVFILT_WRITE of regular files, which epoll refuses: filt_vfsread() and
//! filt_vfswrite(). A file is ready by its position and its end; inotify says when it was written.

use rustix::fs::{FileType, fstat, tell};
use slipstack_mem::Descriptor;

use crate::kqueue::note::Note;
use crate::kqueue::{EVFILT_READ, EVFILT_WRITE, NOTE_FILE_POLL};

/// Returns whether a note of the filter is one of a regular file, if it has no epoll item.
pub(super) fn is_of_file(filter: i16) -> bool {
    matches!(filter, EVFILT_READ | EVFILT_WRITE)
}

/// Returns whether the number is a regular file.
pub(super) fn is_regular(number: usize) -> bool {
    let fd = i32::try_from(number).ok().and_then(Descriptor::new);
    let stat = fd.and_then(|fd| fstat(fd.as_fd()).ok());
    stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file())
}

/// Returns the event's data if the file is ready.
pub(super) fn data_of(note: &Note) -> Option<i64> {
    if note.filter == EVFILT_WRITE {
        return Some(0);
    }
    let fd = i32::try_from(note.ident).ok().and_then(Descriptor::new)?;
    let stat = fstat(fd.as_fd()).ok()?;
    let position = tell(fd.as_fd()).ok()?.cast_signed();
    let left = stat.st_size.saturating_sub(position);
    let is_ready = left != 0 || note.is_forced || note.fflags & NOTE_FILE_POLL != 0;
    is_ready.then_some(left)
}
