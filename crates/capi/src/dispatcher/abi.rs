//! `ff_regist_packet_dispatcher` and related functions, declared as in F-Stack's headers.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_void};
use core::mem::transmute;
use std::sync::atomic::{AtomicUsize, Ordering};

use slipstack_attach::LinkId;

use super::{PLAIN, WITH_CONTEXT};

/// Bytes that an answer may be longer than its question.
pub const HEADROOM: usize = 2048;

pub type Dispatch = unsafe extern "C" fn(*mut c_void, *mut u16, u16, u16) -> c_int;
pub type DispatchInContext =
    unsafe extern "C" fn(*mut c_void, *mut u16, u16, u16, Context) -> c_int;
type Source = unsafe extern "C" fn(u16, *mut c_void, u16, *mut c_void) -> c_int;

/// `struct ff_dispatcher_context`: the tag that the device has taken out, in network order.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Context {
    stripped: u8,
    vlan_tci: u16,
}

impl Context {
    fn of(link: LinkId) -> Context {
        Context {
            stripped: u8::from(link.vlan() != 0),
            vlan_tci: link.vlan().to_be(),
        }
    }
}

/// Address of the program's function that chooses source addresses; 0 = none.
static SOURCE: AtomicUsize = AtomicUsize::new(0);

/// Shows a frame to the program, with the numbers of its queue and of all, and its link.
pub fn call(frame: &mut [u8], len: &mut u16, queues: (u16, u16), link: LinkId) -> c_int {
    let (queue, queues) = queues;
    let data: *mut c_void = frame.as_mut_ptr().cast();
    match (
        PLAIN.load(Ordering::Acquire),
        WITH_CONTEXT.load(Ordering::Acquire),
    ) {
        (0, 0) => c_int::from(queue),
        (0, function) => {
            // SAFETY: the program's function of this type.
            let function = unsafe { transmute::<usize, DispatchInContext>(function) };
            // SAFETY: a frame of `len` bytes with more room behind it.
            unsafe { function(data, len, queue, queues, Context::of(link)) }
        }
        (function, _) => {
            // SAFETY: the program's function of this type.
            let function = unsafe { transmute::<usize, Dispatch>(function) };
            // SAFETY: a frame of `len` bytes with more room behind it.
            unsafe { function(data, len, queue, queues) }
        }
    }
}

/// Shows a frame to the function at the address `work`, with the numbers of its queue and of all.
pub fn call_worker(work: usize, frame: &mut [u8], len: &mut u16, queues: (u16, u16)) -> c_int {
    let data: *mut c_void = frame.as_mut_ptr().cast();
    // SAFETY: the program's function of this type.
    let function = unsafe { transmute::<usize, Dispatch>(work) };
    // SAFETY: a frame of `len` bytes with more room behind it.
    unsafe { function(data, len, queues.0, queues.1) }
}

#[unsafe(no_mangle)]
pub extern "C" fn ff_regist_pcblddr_fun(function: Option<Source>) {
    SOURCE.store(function.map_or(0, |it| it as usize), Ordering::Release);
}

/// Returns the source address that the program chooses for a connection to this one: family and
/// address, as in a `sockaddr`.
pub fn source_for(remote: &[u8]) -> Option<Vec<u8>> {
    let function = SOURCE.load(Ordering::Acquire);
    let family = u16::from_ne_bytes(*remote.first_chunk()?);
    let (at, len) = match i32::from(family) {
        libc::AF_INET => (4, 4),
        libc::AF_INET6 => (8, 16),
        _ => return None,
    };
    if function == 0 || remote.len() < at + len {
        return None;
    }
    let mut address = remote.to_vec();
    let port = u16::from_ne_bytes([address[2], address[3]]);
    let mut source = [0u8; 16];
    let to = address[at..].as_mut_ptr().cast();
    // SAFETY: the program's function of this type.
    let function = unsafe { transmute::<usize, Source>(function) };
    // SAFETY: an address of the family, and room for one.
    unsafe { function(family, to, port, source.as_mut_ptr().cast()) };
    if source[..len].iter().all(|byte| *byte == 0) {
        return None;
    }
    address[2..4].fill(0);
    address[at..at + len].copy_from_slice(&source[..len]);
    Some(address)
}
