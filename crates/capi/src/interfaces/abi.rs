//! The requests' structures, in the program's memory.

use core::ffi::{c_int, c_ulong};

use slipstack_posix::{Errno, Process};

use super::Request;
use crate::call::fail;
use crate::network;

/// struct ifconf.
#[repr(C)]
struct List {
    len: c_int,
    at: *mut Request,
}

/// Answers a request about the stack's interfaces.
///
/// # Safety
/// `argument` is null or the address of what the request takes.
pub unsafe fn ask(process: &Process, request: c_ulong, argument: usize) -> c_int {
    // The keeper knows changes at once; who may not ask it learns of them soon.
    let asked = network::network().map(|network| network.interfaces);
    let interfaces = asked.unwrap_or_else(|_| process.interfaces());
    if request == libc::SIOCGIFCONF {
        // SAFETY: as the caller says.
        return unsafe { list(&super::list(&interfaces), argument) };
    }
    // SAFETY: as the caller says.
    let Some(about) = (unsafe { (argument as *mut Request).as_mut() }) else {
        return fail(Errno::EFAULT) as c_int;
    };
    let asked = super::answer(request, about, &interfaces);
    let done = asked.and_then(|change| change.map_or(Ok(()), |it| network::change(vec![it])));
    done.map_or_else(|errno| fail(errno) as c_int, |()| 0)
}

/// SIOCGIFCONF: as many entries as there is room for, or without a place the bytes that all need.
unsafe fn list(entries: &[Request], argument: usize) -> c_int {
    // SAFETY: as the caller says.
    let Some(list) = (unsafe { (argument as *mut List).as_mut() }) else {
        return fail(Errno::EFAULT) as c_int;
    };
    let room = match list.at.is_null() {
        true => entries.len(),
        false => usize::try_from(list.len).unwrap_or(0) / size_of::<Request>(),
    };
    let count = room.min(entries.len());
    for (at, entry) in entries[..count].iter().enumerate() {
        if list.at.is_null() {
            break;
        }
        // SAFETY: inside the program's place.
        let place = unsafe { list.at.add(at) };
        // SAFETY: as above; it need not be aligned.
        unsafe { place.write_unaligned(*entry) };
    }
    list.len = (count * size_of::<Request>()) as c_int;
    0
}
