//! One registration of a program in a kqueue: a knote.

use crate::kqueue::{
    EV_ACTION, EV_CLEAR, EV_DISABLE, EV_DISPATCH, EV_ENABLE, EV_EOF, EV_FORCEONESHOT, EV_ONESHOT,
    EV_RECEIPT, Kevent, NOTE_CHILD,
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) ident: usize,
    pub(crate) filter: i16,
    pub(crate) flags: u16,
    /// The request: NOTE_ flags and their number.
    pub(crate) fflags: u32,
    pub(crate) data: i64,
    udata: usize,
    ext: [u64; 4],
    pub(crate) is_enabled: bool,
    /// EV_FORCEONESHOT: returned once, whatever its condition.
    pub(crate) is_forced: bool,
    /// An event is pending: for EV_CLEAR, and for filters without a descriptor.
    pub(crate) is_active: bool,
    pub(crate) count: i64,
    pub(crate) fired: u32,
    /// The scan that has returned its event last.
    pub(crate) told_in: u64,
}

/// The state of a note after its event was returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Note that is returned again as long as its condition holds.
    Level,
    /// Note that is returned again when a new event happens.
    Edge,
    Disabled,
    Gone,
}

impl Note {
    pub(crate) fn new(change: &Kevent) -> Note {
        Note {
            ident: change.ident,
            filter: change.filter,
            flags: change.flags & !(EV_ACTION | EV_RECEIPT | EV_EOF),
            fflags: change.fflags,
            data: change.data,
            udata: change.udata,
            ext: change.ext,
            is_enabled: change.flags & EV_DISABLE == 0,
            is_forced: false,
            is_active: false,
            count: 0,
            fired: 0,
            told_in: 0,
        }
    }

    /// knote_fork(): the note of a child of this one's process, which the program is first told of.
    pub(crate) fn for_child(&self, child: usize) -> Note {
        Note {
            ident: child,
            data: i64::try_from(self.ident).unwrap_or(0),
            is_enabled: true,
            is_forced: false,
            is_active: false,
            count: 0,
            fired: NOTE_CHILD,
            ..*self
        }
    }

    /// kqueue_register(): the effect of a change on an existing note.
    pub(crate) fn change(&mut self, change: &Kevent) {
        self.udata = change.udata;
        self.ext = change.ext;
        self.switch(change.flags);
    }

    pub(crate) fn switch(&mut self, flags: u16) {
        if flags & EV_ENABLE != 0 {
            self.is_enabled = true;
        } else if flags & EV_DISABLE != 0 {
            self.is_enabled = false;
        }
        if flags & EV_FORCEONESHOT != 0 {
            self.flags |= EV_ONESHOT;
            self.is_forced = true;
        }
    }

    pub(crate) fn is_clear(&self) -> bool {
        self.flags & EV_CLEAR != 0
    }

    /// The process has ended: nothing more will come.
    pub(crate) fn is_over(&self) -> bool {
        self.flags & EV_EOF != 0
    }

    /// The event that the program is given.
    pub(crate) fn event(&self, flags: u16, fflags: u32, data: i64) -> Kevent {
        Kevent {
            ident: self.ident,
            filter: self.filter,
            flags: self.flags | flags,
            fflags,
            data,
            udata: self.udata,
            ext: self.ext,
        }
    }

    /// Records that the note's event was returned.
    pub(crate) fn on_reported(&mut self) -> After {
        self.is_forced = false;
        if self.flags & EV_ONESHOT != 0 {
            return After::Gone;
        }
        if self.flags & EV_DISPATCH != 0 {
            self.is_enabled = false;
            return After::Disabled;
        }
        match self.is_clear() {
            true => After::Edge,
            false => After::Level,
        }
    }
}
