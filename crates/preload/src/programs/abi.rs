//! bpf(2), which libc has no function for.

use core::ffi::c_int;
use core::slice;

use crate::call::is_from_us;
use crate::process;
use crate::raw;
use crate::thread::InCall;

/// BPF_PROG_LOAD.
const LOAD: usize = 5;
/// BPF_PROG_TYPE_SK_REUSEPORT.
const CHOOSES: u32 = 21;
/// Bytes of an instruction.
const INSTRUCTION: usize = 8;

/// The beginning of `union bpf_attr` of that command, up to the array of descriptors.
#[derive(Clone, Copy)]
#[repr(C)]
struct Attributes {
    kind: u32,
    count: u32,
    instructions: u64,
    more: [u64; 13],
    descriptors: u64,
}

/// Loads a program that chooses sockets; `None`: the call is another one.
///
/// # Safety
/// As in C.
pub unsafe fn bpf(command: usize, attributes: usize, len: usize) -> Option<c_int> {
    if command != LOAD || len < size_of::<u64>() * 2 || is_from_us() {
        return None;
    }
    let mut copy = Attributes {
        kind: 0,
        count: 0,
        instructions: 0,
        more: [0; 13],
        descriptors: 0,
    };
    let args = [command, attributes, len, 0, 0, 0];
    // SAFETY: the program's own call.
    let fd = raw::libc_result(unsafe { raw::syscall6(libc::SYS_bpf, args) }) as c_int;
    if fd < 0 {
        return Some(fd);
    }
    let known = len.min(size_of::<Attributes>());
    // SAFETY: the kernel has read that many bytes there, and there is room for them.
    unsafe {
        core::ptr::copy_nonoverlapping(
            attributes as *const u8,
            (&raw mut copy).cast::<u8>(),
            known,
        );
    }
    if copy.kind == CHOOSES
        && let Some(process) = process::activate()
    {
        let _in_call = InCall::enter();
        let bytes = copy.count as usize * INSTRUCTION;
        // SAFETY: the kernel has read the program there.
        let code = unsafe { slice::from_raw_parts(copy.instructions as *const u8, bytes) };
        process.note_program(fd, code, |index| {
            let first = copy.descriptors as *const i32;
            // SAFETY: the kernel has read the elements that the program refers to.
            (!first.is_null())
                .then(|| unsafe { first.wrapping_add(index as usize).read_unaligned() })
        });
    }
    Some(fd)
}
