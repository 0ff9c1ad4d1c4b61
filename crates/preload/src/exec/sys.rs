//! Reading glibc's file actions of `posix_spawn`, for which libc has no functions.

use core::ffi::c_int;

use libc::posix_spawn_file_actions_t;

/// `struct __spawn_action`: the tag, then a union whose largest member is that of `open`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Raw {
    tag: c_int,
    _gap: c_int,
    numbers: [c_int; 2],
    _rest: [usize; 2],
}

const CLOSE: c_int = 0;
const DUP2: c_int = 1;
const OPEN: c_int = 2;
const CLOSE_FROM: c_int = 5;

/// Beginning of libc's structure.
#[repr(C)]
struct Header {
    allocated: c_int,
    used: c_int,
    actions: *const Raw,
}

/// The effect of an action on descriptor numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `to` becomes a copy of `from`.
    Copy { from: c_int, to: c_int },
    /// The number is closed or becomes something else.
    Replace(c_int),
    /// Closes all descriptors from this number on.
    CloseFrom(c_int),
    /// Nothing.
    Other,
}

/// The actions of one call, for reading and changing.
pub struct Actions {
    list: Vec<Raw>,
    /// libc's structure with our list; libc only reads it.
    whole: posix_spawn_file_actions_t,
}

impl Actions {
    /// # Safety
    /// Null, or file actions that libc has made.
    pub unsafe fn read(from: *const posix_spawn_file_actions_t) -> Actions {
        // SAFETY: null or libc's structure, which begins like this.
        let list = match unsafe { from.cast::<Header>().as_ref() } {
            Some(header) if header.used > 0 && !header.actions.is_null() => {
                let used = header.used.min(header.allocated).max(0) as usize;
                // SAFETY: libc has written so many.
                unsafe { core::slice::from_raw_parts(header.actions, used) }.to_vec()
            }
            _ => Vec::new(),
        };
        Actions {
            list,
            // SAFETY: integers and pointers.
            whole: unsafe { core::mem::zeroed() },
        }
    }

    pub fn all(&self) -> impl Iterator<Item = Action> {
        self.list.iter().map(|raw| match (raw.tag, raw.numbers) {
            (CLOSE | OPEN, [number, _]) => Action::Replace(number),
            (DUP2, [from, to]) => Action::Copy { from, to },
            (CLOSE_FROM, [number, _]) => Action::CloseFrom(number),
            _ => Action::Other,
        })
    }

    /// The copy that action `index` makes is one of `from`.
    pub fn set_source(&mut self, index: usize, from: c_int) {
        self.list[index].numbers[0] = from;
    }

    /// Makes `to` a copy of `from` before all other actions.
    pub fn put_first(&mut self, from: c_int, to: c_int) {
        let raw = Raw {
            tag: DUP2,
            _gap: 0,
            numbers: [from, to],
            _rest: [0; 2],
        };
        self.list.insert(0, raw);
    }

    /// Returns the list for libc, valid as long as `self` lives unchanged.
    pub fn as_ptr(&mut self) -> *const posix_spawn_file_actions_t {
        let count = self.list.len() as c_int;
        let header = Header {
            allocated: count,
            used: count,
            actions: self.list.as_ptr(),
        };
        let at: *mut posix_spawn_file_actions_t = &raw mut self.whole;
        // SAFETY: the structure has room for its beginning.
        unsafe { at.cast::<Header>().write(header) };
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_actions_written_by_libc_are_read_correctly() {
        // SAFETY: integers and pointers.
        let mut made: posix_spawn_file_actions_t = unsafe { core::mem::zeroed() };
        let at = &raw mut made;
        // SAFETY: made here.
        unsafe { libc::posix_spawn_file_actions_init(at) };
        // SAFETY: initialised.
        unsafe { libc::posix_spawn_file_actions_addclose(at, 11) };
        // SAFETY: initialised.
        unsafe { libc::posix_spawn_file_actions_adddup2(at, 22, 33) };
        let path = c"/dev/null".as_ptr();
        // SAFETY: initialised; the path is a C string.
        unsafe { libc::posix_spawn_file_actions_addopen(at, 44, path, 0, 0) };
        // SAFETY: initialised.
        let mut actions = unsafe { Actions::read(at) };
        // SAFETY: initialised, and not used any more.
        unsafe { libc::posix_spawn_file_actions_destroy(at) };
        let expected = [
            Action::Replace(11),
            Action::Copy { from: 22, to: 33 },
            Action::Replace(44),
        ];
        assert!(actions.all().eq(expected));
        actions.set_source(1, 55);
        actions.put_first(66, 7);
        let at = actions.as_ptr();
        // SAFETY: just made.
        let again = unsafe { Actions::read(at) };
        let expected = [
            Action::Copy { from: 66, to: 7 },
            Action::Replace(11),
            Action::Copy { from: 55, to: 33 },
            Action::Replace(44),
        ];
        assert!(again.all().eq(expected));
    }

    #[test]
    fn null_file_actions_are_empty() {
        // SAFETY: null.
        let actions = unsafe { Actions::read(core::ptr::null()) };
        assert_eq!(actions.all().count(), 0);
    }
}
