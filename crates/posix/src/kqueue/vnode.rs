//! EVFILT_VNODE, by inotify: events of an open file.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use rustix::fs::{fstat, inotify};
use slipstack_mem::{Descriptor, raised};

use crate::errno::Errno;
use crate::kqueue::at::KqueueRef;
use crate::kqueue::files::File;
use crate::kqueue::others::FILES;
use crate::kqueue::queue::{Inner, Key};
use crate::kqueue::{
    EV_CLEAR, EVFILT_READ, EVFILT_VNODE, EVFILT_WRITE, Kevent, NOTE_ATTRIB, NOTE_CLOSE,
    NOTE_CLOSE_WRITE, NOTE_DELETE, NOTE_EXTEND, NOTE_LINK, NOTE_OPEN, NOTE_READ, NOTE_RENAME,
    NOTE_REVOKE, NOTE_WRITE,
};

const ALL: u32 = NOTE_DELETE
    | NOTE_WRITE
    | NOTE_EXTEND
    | NOTE_ATTRIB
    | NOTE_LINK
    | NOTE_RENAME
    | NOTE_REVOKE
    | NOTE_OPEN
    | NOTE_CLOSE
    | NOTE_CLOSE_WRITE
    | NOTE_READ;

impl KqueueRef<'_> {
    pub(super) fn watch_file(self, inner: &mut Inner, change: &Kevent) -> Result<(), Errno> {
        let number = i32::try_from(change.ident).map_err(|_| Errno::EBADF)?;
        if change.fflags & !ALL != 0 || self.host.is_ours(number) {
            return Err(Errno::EINVAL);
        }
        self.watch(inner, number, wanted(change.fflags))
    }

    /// Watches what is written to a file, which EVFILT_READ is about.
    pub(super) fn watch_contents(self, inner: &mut Inner, change: &Kevent) -> Result<(), Errno> {
        let number = i32::try_from(change.ident).map_err(|_| Errno::EBADF)?;
        let flags = inotify::WatchFlags::MASK_ADD | inotify::WatchFlags::MODIFY;
        self.watch(inner, number, flags)
    }

    fn watch(
        self,
        inner: &mut Inner,
        number: i32,
        flags: inotify::WatchFlags,
    ) -> Result<(), Errno> {
        let fd = Descriptor::new(number).ok_or(Errno::EBADF)?;
        let stat = fstat(fd.as_fd())?;
        if inner.files.inotify.is_none() {
            let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
            let fresh = raised(inotify::init(flags)?);
            self.watch_inside(fresh.as_fd(), FILES)?;
            inner.files.inotify = Some(fresh);
        }
        let Some(instance) = &inner.files.inotify else {
            return Err(Errno::EINVAL);
        };
        let path = format!("/proc/self/fd/{number}");
        let watch = inotify::add_watch(instance, path, flags)?;
        let file = File {
            watch,
            size: stat.st_size,
            attachments: stat.st_nlink,
        };
        inner.files.open.insert(number, file);
        Ok(())
    }
}

fn wanted(notes: u32) -> inotify::WatchFlags {
    type Flags = inotify::WatchFlags;
    let mut flags = Flags::MASK_ADD;
    let pairs = [
        (
            NOTE_WRITE | NOTE_EXTEND,
            Flags::MODIFY | Flags::CREATE | Flags::DELETE | Flags::MOVE,
        ),
        (
            NOTE_ATTRIB | NOTE_LINK | NOTE_DELETE,
            Flags::ATTRIB | Flags::DELETE_SELF,
        ),
        (NOTE_RENAME, Flags::MOVE_SELF),
        (NOTE_OPEN, Flags::OPEN),
        (NOTE_CLOSE, Flags::CLOSE_NOWRITE),
        (NOTE_CLOSE_WRITE, Flags::CLOSE_WRITE),
        (NOTE_READ, Flags::ACCESS),
    ];
    for (note, events) in pairs {
        if notes & note != 0 {
            flags |= events;
        }
    }
    flags
}

impl Inner {
    /// The number is another thing's from now on.
    pub(crate) fn forget_file(&mut self, fd: i32) {
        if !self.files.open.contains_key(&fd) {
            return;
        }
        for key in keys(fd) {
            self.forget(key);
        }
        self.release_file(fd);
    }

    /// A note of the file is gone; its watch goes with the last one.
    pub(super) fn release_file(&mut self, fd: i32) {
        if keys(fd).iter().any(|key| self.others.contains_key(key)) {
            return;
        }
        let Some(file) = self.files.open.remove(&fd) else {
            return;
        };
        let is_shared = self
            .files
            .open
            .values()
            .any(|other| other.watch == file.watch);
        if let Some(instance) = self.files.inotify.as_ref().filter(|_| !is_shared) {
            let _ = inotify::remove_watch(instance, file.watch);
        }
    }

    /// Something has happened to files.
    pub(super) fn read_files(&mut self) {
        let mut happened: Vec<(i32, inotify::ReadFlags)> = Vec::new();
        if let Some(instance) = &self.files.inotify {
            let mut room = [const { MaybeUninit::uninit() }; 4096];
            let mut reader = inotify::Reader::new(instance, &mut room);
            while let Ok(event) = reader.next() {
                happened.push((event.wd(), event.events()));
            }
        }
        for (watch, events) in happened {
            let of_watch = |(_, file): &(&i32, &mut File)| file.watch == watch;
            let files = self.files.open.iter_mut().filter(of_watch);
            let reported: Vec<(i32, u32)> = files
                .map(|(fd, file)| (*fd, news(*fd, file, events)))
                .collect();
            for (fd, notes) in reported {
                self.note_file(fd, notes);
            }
        }
    }

    fn note_file(&mut self, fd: i32, notes: u32) {
        let [key, read, _] = keys(fd);
        if notes & NOTE_WRITE != 0 {
            self.activate(read);
        }
        let Some(note) = self.others.get_mut(&key) else {
            return;
        };
        let asked = notes & note.fflags;
        if asked != 0 {
            note.fired |= asked;
            // A file event is reported once.
            note.flags |= EV_CLEAR;
            self.activate(key);
        }
    }
}

/// The notes that a file may have.
fn keys(fd: i32) -> [Key; 3] {
    let ident = usize::try_from(fd).unwrap_or(usize::MAX);
    [EVFILT_VNODE, EVFILT_READ, EVFILT_WRITE].map(|filter| (filter, ident))
}

/// Converts inotify's events to FreeBSD's.
fn news(fd: i32, file: &mut File, events: inotify::ReadFlags) -> u32 {
    type Flags = inotify::ReadFlags;
    let mut notes = 0;
    let stat = Descriptor::new(fd).and_then(|fd| fstat(fd.as_fd()).ok());
    let (size, attachments) = stat.map_or((file.size, file.attachments), |stat| {
        (stat.st_size, stat.st_nlink)
    });
    if events.intersects(
        Flags::MODIFY | Flags::CREATE | Flags::DELETE | Flags::MOVED_FROM | Flags::MOVED_TO,
    ) {
        notes |= NOTE_WRITE;
        if size > file.size {
            notes |= NOTE_EXTEND;
        }
    }
    if events.intersects(Flags::ATTRIB | Flags::DELETE_SELF) {
        notes |= match attachments {
            0 => NOTE_DELETE,
            attachments if attachments != file.attachments => NOTE_LINK,
            _ => NOTE_ATTRIB,
        };
    }
    let pairs = [
        (Flags::MOVE_SELF, NOTE_RENAME),
        (Flags::UNMOUNT, NOTE_REVOKE),
        (Flags::OPEN, NOTE_OPEN),
        (Flags::CLOSE_NOWRITE, NOTE_CLOSE),
        (Flags::CLOSE_WRITE, NOTE_CLOSE_WRITE),
        (Flags::ACCESS, NOTE_READ),
    ];
    for (event, note) in pairs {
        if events.contains(event) {
            notes |= note;
        }
    }
    (file.size, file.attachments) = (size, attachments);
    notes
}
