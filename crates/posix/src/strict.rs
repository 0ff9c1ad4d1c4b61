//! `--strict`: a socket that would fall back to the kernel fails instead, loudly.
//!
//! The loopback networks and unix sockets are no fallback: they are the kernel's by design.

use std::net::SocketAddr;

use crate::errno::Errno;
use crate::process::Process;
use crate::report::Reason;

impl Process {
    /// Whether a socket may go to the kernel because of `why`.
    ///
    /// # Errors
    /// `refusal`, under `--strict` and for any address but a loopback one.
    pub(crate) fn permit_kernel(
        &self,
        addr: SocketAddr,
        why: Reason,
        refusal: Errno,
    ) -> Result<(), Errno> {
        let ip = addr.ip().to_canonical();
        if !self.settings.strict || ip.is_loopback() || why == Reason::Loopback {
            return Ok(());
        }
        self.kernel.warn(&format!(
            "--strict: a socket for {addr} is refused instead of left to the kernel: {}",
            why.sentence()
        ));
        Err(refusal)
    }
}
