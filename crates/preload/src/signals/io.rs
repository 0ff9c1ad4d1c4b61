//! Signals that report events of a socket (F_SETSIG).
//!
//! A process may send signals with the kernel's codes to itself only. Those for another process or
//! for one thread have SI_SIGIO with the kernel's band and number; before a program with the
//! library sees one, in a handler or by `sigwaitinfo`, the code is replaced by the kernel's.

use libc::c_int;
use slipstack_posix::{Owner, OwnerKind};

use crate::raw;

const SI_SIGIO: c_int = -5;

/// sigio_table (fs/fcntl.c): `si_band` by `si_code`, from POLL_IN on.
const BANDS: [u64; 6] = [0x41, 0x304, 0x442, 0x8, 0x82, 0x18];

/// Sends SIGIO, or another signal with its event, to the owner of a socket.
pub fn send_io(owner: Owner, signal: c_int, fd: c_int, code: c_int) {
    let band = usize::try_from(code - 1).ok().and_then(|at| BANDS.get(at));
    if let (1.., 1.., Some(&band)) = (owner.id, signal, band) {
        let is_own = owner.kind == OwnerKind::Process && owner.id == std::process::id() as c_int;
        let mut info = [0u64; 16];
        info[0] = signal as u64;
        info[1] = u64::from(if is_own { code } else { SI_SIGIO }.cast_unsigned());
        info[2] = band;
        info[3] = fd as u64;
        let is_sent = match is_own {
            true => raw::queue_to_process(signal, &info),
            false => raw::queue_to(owner, signal, &info),
        };
        if is_sent {
            return;
        }
    }
    raw::signal(owner, libc::SIGIO);
}

/// The kernel's `si_code` of one that [`send_io`] has sent.
fn code_of(code: c_int, band: u64) -> Option<c_int> {
    let at = BANDS.iter().position(|other| *other == band)?;
    (code == SI_SIGIO).then_some(at as c_int + 1)
}

/// Gives a `siginfo_t` the kernel's code, if [`send_io`] has sent it.
pub fn restore_code(info: &mut [u64; 16]) {
    if let Some(code) = code_of(info[1] as u32 as c_int, info[2]) {
        info[1] = u64::from(code.cast_unsigned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_sent_by_the_library_are_reported_as_kernel_sockets() {
        for (code, &band) in (1..).zip(&BANDS) {
            assert_eq!(code_of(SI_SIGIO, band), Some(code));
            assert_eq!(code_of(libc::SI_QUEUE, band), None);
        }
        assert_eq!(code_of(SI_SIGIO, 0), None);
    }
}
