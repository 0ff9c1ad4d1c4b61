//! Conversion of C's arguments to Rust types: pointers become slices here, and only here.
//!
//! A pointer to where no program has memory (null, the first page, the kernel's half) is EFAULT, as
//! on the kernel. Any other invalid pointer ends the program with SIGSEGV, where the kernel would
//! return EFAULT: checking it before each copy would take a system call.

use core::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use slipstack_posix::{AddrBytes, Errno};

/// Linux's UIO_MAXIOV.
const IOVECS_MAX: usize = 1024;

/// Linux maps nothing below its second page (`vm.mmap_min_addr` is more), and nothing for programs
/// from here on (five levels of page tables).
const LOWEST: usize = 4096;
const BEYOND: usize = 1 << 56;

/// Returns true if no program has memory there.
#[inline]
pub fn is_out_of_reach<T>(at: *const T) -> bool {
    at.addr().wrapping_sub(LOWEST) >= BEYOND - LOWEST
}

/// A structure of the program's.
///
/// # Safety
/// Out of reach, or valid while the call lasts.
pub unsafe fn object<'a, T>(at: *const T) -> Result<&'a T, Errno> {
    if is_out_of_reach(at) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the caller vouches for it.
    Ok(unsafe { &*at })
}

/// Returns a structure of the program, to be changed.
///
/// # Safety
/// Out of reach, or valid and used by nothing else during the call.
pub unsafe fn object_mut<'a, T>(at: *mut T) -> Result<&'a mut T, Errno> {
    if is_out_of_reach(at) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the caller vouches for it.
    Ok(unsafe { &mut *at })
}

/// A structure that the program may leave out.
///
/// # Safety
/// Null, or as [`object`].
pub unsafe fn optional<'a, T>(at: *const T) -> Result<Option<&'a T>, Errno> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller vouches for it.
    unsafe { object(at) }.map(Some)
}

/// Returns the program's `len` bytes at `at`.
///
/// # Safety
/// Null, or `len` readable bytes that live while the call lasts.
pub unsafe fn bytes<'a>(at: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    if len == 0 {
        return Ok(&[]);
    }
    if is_out_of_reach(at) || len > isize::MAX as usize {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the caller vouches for the bytes.
    Ok(unsafe { core::slice::from_raw_parts(at.cast(), len) })
}

/// Returns the place to which the program wants `len` bytes written.
///
/// # Safety
/// Null, or `len` writable bytes that nothing else uses during the call.
pub unsafe fn bytes_mut<'a>(at: *mut c_void, len: usize) -> Result<&'a mut [u8], Errno> {
    if len == 0 {
        return Ok(&mut []);
    }
    if is_out_of_reach(at) || len > isize::MAX as usize {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the caller vouches for the bytes.
    Ok(unsafe { core::slice::from_raw_parts_mut(at.cast(), len) })
}

/// Bytes of all the program's buffers, null ones too.
///
/// # Safety
/// Null, or `count` valid elements.
pub unsafe fn total_len(at: *const libc::iovec, count: usize) -> usize {
    if is_out_of_reach(at) || count > IOVECS_MAX {
        return 0;
    }
    // SAFETY: the caller vouches for the elements.
    let vecs = unsafe { core::slice::from_raw_parts(at, count) };
    vecs.iter()
        .fold(0, |sum: usize, vec| sum.saturating_add(vec.iov_len))
}

/// Returns an array of the program; null only when it is empty.
///
/// # Safety
/// Null, or `len` valid elements that nothing else changes during the call.
pub unsafe fn array_mut<'a, T>(at: *mut T, len: usize) -> Result<&'a mut [T], Errno> {
    if len == 0 {
        return Ok(&mut []);
    }
    if is_out_of_reach(at) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the caller vouches for the elements.
    Ok(unsafe { core::slice::from_raw_parts_mut(at, len) })
}

/// A socket address given by the program. Linux refuses lengths over
/// `sizeof(struct sockaddr_storage)`.
///
/// # Safety
/// As [`bytes`].
pub unsafe fn address<'a>(
    at: *const libc::sockaddr,
    len: libc::socklen_t,
) -> Result<&'a [u8], Errno> {
    if len as usize > size_of::<libc::sockaddr_storage>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller vouches for the bytes.
    unsafe { bytes(at.cast(), len as usize) }
}

/// Writes an address for the program, cut to its room, and the whole length.
///
/// # Safety
/// `at` null (nothing is wanted) or `*len` writable bytes.
pub unsafe fn give_address(
    address: &[u8],
    at: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> Result<(), Errno> {
    if at.is_null() {
        return Ok(());
    }
    // SAFETY: a length word of the program's.
    let len = unsafe { object_mut(len) }?;
    let room = usize::try_from((*len).cast_signed()).map_err(|_| Errno::EINVAL)?;
    let copied = room.min(address.len());
    // SAFETY: the program declares that it has `room` bytes there.
    let place = unsafe { bytes_mut(at.cast(), copied) }?;
    place.copy_from_slice(&address[..copied]);
    *len = address.len() as libc::socklen_t;
    Ok(())
}

/// As [`give_address`] for calls that are made for the address alone: null is a bad place for it.
///
/// # Safety
/// As [`give_address`].
pub unsafe fn give_name(
    address: &[u8],
    at: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> Result<(), Errno> {
    // SAFETY: a length word of the program's.
    match unsafe { object_mut(len) } {
        Err(errno) => Err(errno),
        // move_addr_to_user(): no place is needed for nothing.
        Ok(len) if at.is_null() => match (*len).cast_signed() {
            0 => {
                *len = address.len() as libc::socklen_t;
                Ok(())
            }
            1.. => Err(Errno::EFAULT),
            _ => Err(Errno::EINVAL),
        },
        // SAFETY: as the caller vouches.
        Ok(_) => unsafe { give_address(address, at, len) },
    }
}

/// As [`give_address`] for calls that may have no address to give (streams): then the length
/// becomes 0.
///
/// # Safety
/// As [`give_address`].
pub unsafe fn give_sender(
    address: Option<AddrBytes>,
    at: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> Result<(), Errno> {
    let address = address.as_ref().map_or(&[][..], AddrBytes::as_bytes);
    // SAFETY: as the caller vouches.
    unsafe { give_address(address, at, len) }
}

/// Checks an array of buffers as the kernel does, and returns whether each has a place.
///
/// # Safety
/// Null, or `count` valid elements.
unsafe fn check_iovecs(
    at: *const libc::iovec,
    count: usize,
    too_many: Errno,
) -> Result<bool, Errno> {
    if count > IOVECS_MAX {
        return Err(too_many);
    }
    if count == 0 {
        return Ok(true);
    }
    if is_out_of_reach(at) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the caller vouches for the elements.
    let vecs = unsafe { core::slice::from_raw_parts(at, count) };
    let mut total = 0usize;
    for vec in vecs {
        total = total.saturating_add(vec.iov_len);
        if is_out_of_reach(vec.iov_base) && vec.iov_len != 0 {
            return Err(Errno::EFAULT);
        }
    }
    if total > isize::MAX as usize {
        return Err(Errno::EINVAL);
    }
    Ok(vecs.iter().all(|vec| !vec.iov_base.is_null()))
}

/// Runs `work` with the program's buffers to read from.
///
/// # Safety
/// `at` is null or an array of `count` buffers that live while the call lasts.
pub unsafe fn with_slices<T>(
    at: *const libc::iovec,
    count: usize,
    too_many: Errno,
    work: impl FnOnce(&[IoSlice<'_>]) -> T,
) -> Result<T, Errno> {
    // SAFETY: the caller vouches for the elements.
    if count != 0 && unsafe { check_iovecs(at, count, too_many) }? {
        // SAFETY: IoSlice has the layout of iovec; no base is null.
        return Ok(work(unsafe {
            core::slice::from_raw_parts(at.cast(), count)
        }));
    }
    let mut placed = Vec::new();
    for index in 0..count {
        // SAFETY: `index` is inside the array.
        let vec = unsafe { at.add(index) };
        // SAFETY: an element of the array.
        let vec = unsafe { &*vec };
        // SAFETY: the program's buffer; a null one is empty.
        placed.push(IoSlice::new(unsafe { bytes(vec.iov_base, vec.iov_len) }?));
    }
    Ok(work(&placed))
}

/// Runs `work` with the program's buffers to write to.
///
/// # Safety
/// As [`with_slices`].
pub unsafe fn with_slices_mut<T>(
    at: *const libc::iovec,
    count: usize,
    too_many: Errno,
    work: impl FnOnce(&mut [IoSliceMut<'_>]) -> T,
) -> Result<T, Errno> {
    // SAFETY: the caller vouches for the elements.
    unsafe { check_iovecs(at, count, too_many) }?;
    // The program's array may be read-only memory, so the views are copies.
    const INLINE: usize = 16;
    let mut inline: [IoSliceMut<'_>; INLINE] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
    let mut many = Vec::new();
    let views = if count <= INLINE {
        &mut inline[..count]
    } else {
        many.resize_with(count, || IoSliceMut::new(&mut []));
        &mut many[..]
    };
    for (index, view) in views.iter_mut().enumerate() {
        // SAFETY: `index` is inside the array.
        let vec = unsafe { at.add(index) };
        // SAFETY: an element of the array.
        let vec = unsafe { &*vec };
        // SAFETY: the program's buffer; a null one is empty.
        *view = IoSliceMut::new(unsafe { bytes_mut(vec.iov_base, vec.iov_len) }?);
    }
    Ok(work(views))
}

/// Milliseconds of `poll` and `epoll_wait`; negative waits for ever.
pub fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// A `timespec` of the program's; null waits for ever.
///
/// # Safety
/// Null or a valid structure.
pub unsafe fn timespec(at: *const libc::timespec) -> Result<Option<Duration>, Errno> {
    // SAFETY: the caller vouches for it.
    let Some(time) = unsafe { optional(at) }? else {
        return Ok(None);
    };
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => {
            Ok(Some(Duration::new(seconds, nanos)))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// A `timeval` of the program's; null waits for ever. Linux carries whole seconds over.
///
/// # Safety
/// Null or a valid structure.
pub unsafe fn timeval(at: *const libc::timeval) -> Result<Option<Duration>, Errno> {
    // SAFETY: the caller vouches for it.
    let Some(time) = unsafe { optional(at) }? else {
        return Ok(None);
    };
    match (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec)) {
        (Ok(seconds), Ok(micros)) => {
            let seconds = seconds.saturating_add(micros / 1_000_000);
            let nanos = (micros % 1_000_000) as u32 * 1000;
            Ok(Some(Duration::new(seconds, nanos)))
        }
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_buffer_is_accepted_only_with_length_zero() {
        // SAFETY: null pointers are allowed.
        assert_eq!(unsafe { bytes(core::ptr::null(), 0) }, Ok(&[][..]));
        // SAFETY: null pointers are allowed.
        assert_eq!(unsafe { bytes(core::ptr::null(), 1) }, Err(Errno::EFAULT));
    }

    #[test]
    fn addresses_outside_of_user_memory_are_refused() {
        let at = core::ptr::without_provenance::<u8>;
        for bad in [0, 1, 4095, usize::MAX, 1 << 63, 1 << 56] {
            assert!(is_out_of_reach(at(bad)), "{bad:#x}");
        }
        for good in [4096, 1 << 47, (1 << 56) - 1, (&raw const at).addr()] {
            assert!(!is_out_of_reach(at(good)), "{good:#x}");
        }
    }

    #[test]
    fn empty_null_iovecs_are_skipped() {
        let text = *b"abc";
        let vecs = [
            libc::iovec {
                iov_base: core::ptr::null_mut(),
                iov_len: 0,
            },
            libc::iovec {
                iov_base: text.as_ptr().cast_mut().cast(),
                iov_len: 3,
            },
        ];
        let joined = |slices: &[IoSlice<'_>]| slices.iter().flat_map(|s| s.to_vec()).collect();
        // SAFETY: the array and its buffers are alive.
        let all: Result<Vec<u8>, _> =
            unsafe { with_slices(vecs.as_ptr(), 2, Errno::EINVAL, joined) };
        assert_eq!(all, Ok(b"abc".to_vec()));
    }

    #[test]
    fn too_many_iovecs_are_refused_before_they_are_read() {
        // SAFETY: nothing is read.
        let result = unsafe { with_slices(core::ptr::null(), 1025, Errno::EMSGSIZE, |_| ()) };
        assert_eq!(result, Err(Errno::EMSGSIZE));
    }

    #[test]
    fn addresses_are_truncated_and_their_length_is_returned() {
        let mut room = [0u8; 4];
        let mut len = 4;
        // SAFETY: `len` is the size of `room`.
        let result =
            unsafe { give_address(&[1, 2, 3, 4, 5], room.as_mut_ptr().cast(), &raw mut len) };
        assert_eq!((result, room, len), (Ok(()), [1, 2, 3, 4], 5));
    }

    #[test]
    fn times_out_of_range_are_invalid() {
        let bad = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000_000,
        };
        // SAFETY: a live structure.
        assert_eq!(unsafe { timespec(&raw const bad) }, Err(Errno::EINVAL));
        assert_eq!(milliseconds(-1), None);
        assert_eq!(milliseconds(5), Some(Duration::from_millis(5)));
    }
}
