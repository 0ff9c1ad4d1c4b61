//! C's arrays of kevents.

use core::ffi::c_int;

use slipstack_posix::Errno;
use slipstack_posix::kqueue::Kevent;

/// Changes that are copied without an allocation.
const FEW: usize = 16;

/// Runs `work` with the program's changes, copied: it may give the same array for events.
///
/// # Safety
/// Null, or `count` valid elements.
pub unsafe fn with_changes<T>(
    at: *const Kevent,
    count: c_int,
    work: impl FnOnce(&[Kevent]) -> T,
) -> Result<T, Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    if count > 0 && at.is_null() {
        return Err(Errno::EFAULT);
    }
    let mut few = [Kevent::default(); FEW];
    let mut many = Vec::new();
    let changes = if count <= FEW {
        &mut few[..count]
    } else {
        many.resize(count, Kevent::default());
        &mut many[..]
    };
    for (index, change) in changes.iter_mut().enumerate() {
        // SAFETY: inside the program's array.
        let place = unsafe { at.add(index) };
        // SAFETY: as above; the array may be anywhere.
        *change = unsafe { place.read_unaligned() };
    }
    Ok(work(changes))
}

/// The program's room for events, filled from the front.
#[derive(Debug)]
pub struct Places {
    at: *mut Kevent,
    room: usize,
    filled: usize,
}

impl Places {
    /// # Errors
    /// EINVAL: a negative number. EFAULT: no memory there.
    ///
    /// # Safety
    /// Null, or room for `room` elements that nothing else uses meanwhile.
    pub unsafe fn new(at: *mut Kevent, room: c_int) -> Result<Places, Errno> {
        let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
        if room > 0 && at.is_null() {
            return Err(Errno::EFAULT);
        }
        Ok(Places {
            at,
            room,
            filled: 0,
        })
    }

    pub fn has_room(&self) -> bool {
        self.filled < self.room
    }

    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Returns whether there was room.
    pub fn put(&mut self, event: Kevent) -> bool {
        if !self.has_room() {
            return false;
        }
        // SAFETY: inside the room that the maker vouched for.
        let place = unsafe { self.at.add(self.filled) };
        // SAFETY: as above; the array may be anywhere.
        unsafe { place.write_unaligned(event) };
        self.filled += 1;
        true
    }
}
