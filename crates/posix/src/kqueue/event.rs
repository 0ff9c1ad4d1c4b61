//! The structure and the numbers of FreeBSD's kevent(2).

/// `struct kevent`, as in C.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kevent {
    pub ident: usize,
    pub filter: i16,
    pub flags: u16,
    pub fflags: u32,
    pub data: i64,
    /// The program's own value, returned unchanged.
    pub udata: usize,
    pub ext: [u64; 4],
}

const _: () = assert!(size_of::<Kevent>() == 64);

pub const EVFILT_READ: i16 = -1;
pub const EVFILT_WRITE: i16 = -2;
pub const EVFILT_VNODE: i16 = -4;
pub const EVFILT_PROC: i16 = -5;
pub const EVFILT_SIGNAL: i16 = -6;
pub const EVFILT_TIMER: i16 = -7;
pub const EVFILT_USER: i16 = -11;
pub const EVFILT_EMPTY: i16 = -13;

pub const EV_ADD: u16 = 0x1;
pub const EV_DELETE: u16 = 0x2;
pub const EV_ENABLE: u16 = 0x4;
pub const EV_DISABLE: u16 = 0x8;
pub const EV_ONESHOT: u16 = 0x10;
pub const EV_CLEAR: u16 = 0x20;
pub const EV_RECEIPT: u16 = 0x40;
pub const EV_DISPATCH: u16 = 0x80;
pub const EV_FORCEONESHOT: u16 = 0x100;
pub const EV_ERROR: u16 = 0x4000;
pub const EV_EOF: u16 = 0x8000;
/// Flags of a change's request; the others stay with the note.
pub(crate) const EV_ACTION: u16 = EV_ADD | EV_DELETE | EV_ENABLE | EV_DISABLE | EV_FORCEONESHOT;

pub const NOTE_LOWAT: u32 = 1;
/// A flag for regular files: they are ready at their end too.
pub const NOTE_FILE_POLL: u32 = 2;
pub const NOTE_TRIGGER: u32 = 0x0100_0000;
pub const NOTE_FFCTRLMASK: u32 = 0xc000_0000;
pub const NOTE_FFLAGSMASK: u32 = 0x00ff_ffff;
pub const NOTE_FFAND: u32 = 0x4000_0000;
pub const NOTE_FFOR: u32 = 0x8000_0000;
pub const NOTE_FFCOPY: u32 = 0xc000_0000;

pub const NOTE_SECONDS: u32 = 1;
pub const NOTE_MSECONDS: u32 = 2;
pub const NOTE_USECONDS: u32 = 4;
pub const NOTE_NSECONDS: u32 = 8;
pub const NOTE_ABSTIME: u32 = 0x10;

pub const NOTE_EXIT: u32 = 0x8000_0000;
pub const NOTE_FORK: u32 = 0x4000_0000;
pub const NOTE_EXEC: u32 = 0x2000_0000;
pub const NOTE_TRACK: u32 = 1;
pub const NOTE_TRACKERR: u32 = 2;
pub const NOTE_CHILD: u32 = 4;

pub const NOTE_DELETE: u32 = 0x1;
pub const NOTE_WRITE: u32 = 0x2;
pub const NOTE_EXTEND: u32 = 0x4;
pub const NOTE_ATTRIB: u32 = 0x8;
pub const NOTE_LINK: u32 = 0x10;
pub const NOTE_RENAME: u32 = 0x20;
pub const NOTE_REVOKE: u32 = 0x40;
pub const NOTE_OPEN: u32 = 0x80;
pub const NOTE_CLOSE: u32 = 0x100;
pub const NOTE_CLOSE_WRITE: u32 = 0x200;
pub const NOTE_READ: u32 = 0x400;
