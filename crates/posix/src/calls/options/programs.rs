//! BPF programs of a socket: its filter, and SO_ATTACH_REUSEPORT_EBPF.

use std::sync::Arc;

use slipstack_channel::CHOOSER_MAX;
use slipstack_mem::Descriptor;

use crate::errno::Errno;
use crate::process::Process;
use crate::process::lending::word::{attach_behind_word, has_filter};
use crate::socket::description::{Decided, Description};
use crate::socket::options::attaching::{
    ATTACH, CHOOSE, CHOOSE_EXTENDED, DETACH, UNCHOOSE, chooser_value, filter_in,
};
use crate::socket::options::record::int_of;

/// Bytes of an instruction.
const INSTRUCTION: usize = 8;

/// Missing in libc for some targets (asm-generic/socket.h).
const LOCK_FILTER: i32 = 44;

impl Process {
    /// Gives the kernel's part a filter, `code`, or takes it away: beside the word that it may have
    /// for another program, and the filter of groups. Record and kernel's part change at once.
    #[cold]
    pub(super) fn put_filter(
        &self,
        socket: &Description,
        (level, name): (i32, i32),
        value: &[u8],
        code: &[u8],
    ) -> Result<(), Errno> {
        let part = socket.kernel_number();
        let part = part.filter(|_| !matches!(socket.decided(), Some(Decided::Foreign(_))));
        let Some(fd) = part.map(Descriptor::number) else {
            self.try_on_kernel(socket, level, name, value)?;
            socket.cold.lock().options.set(ATTACH.0, ATTACH.1, code);
            return Ok(());
        };
        // sk_setsockopt(): an int comes first.
        if (level, name) == DETACH && value.len() < 4 {
            return Err(Errno::EINVAL);
        }
        // Another thread may leave a word, or the filter of groups.
        let mut cold = socket.cold.lock();
        let mut locked = [0; 4];
        let asked = self
            .kernel
            .getsockopt(fd, libc::SOL_SOCKET, LOCK_FILTER, &mut locked);
        // sk_detach_filter(); a program without the library may have set one.
        let is_none = filter_in(&cold.options).is_none();
        if (level, name) == DETACH && is_none && !has_filter(&*self.kernel, fd) {
            let is_locked = asked.is_ok() && locked != [0; 4];
            return Err(if is_locked {
                Errno::EPERM
            } else {
                Errno::ENOENT
            });
        }
        if !attach_behind_word(&*self.kernel, fd, code)? {
            self.kernel.setsockopt(fd, level, name, value)?;
        }
        cold.options.set(ATTACH.0, ATTACH.1, code);
        Ok(())
    }

    /// Has an extended program choose among the sockets of a datagram socket's group. The kernel
    /// judges it first, and its part of the group has it too: it keeps the maps.
    #[cold]
    pub(super) fn choose_extended(
        &self,
        socket: &Arc<Description>,
        value: &[u8],
    ) -> Result<(), Errno> {
        let number = self.materialize(socket)?.number();
        let (level, name) = CHOOSE_EXTENDED;
        self.kernel.setsockopt(number, level, name, value)?;
        let program = int_of(value).ok_or(Errno::EINVAL)?;
        let code = self.code_of(program).inspect_err(|_| {
            let nothing = 0i32.to_ne_bytes();
            let _ = self
                .kernel
                .setsockopt(number, UNCHOOSE.0, UNCHOOSE.1, &nothing);
        })?;
        let options = {
            let mut cold = socket.cold.lock();
            let value = chooser_value(&code, self.kernel.now_ns());
            cold.options.set(CHOOSE.0, CHOOSE.1, &value);
            cold.options.clone()
        };
        if let Some(Decided::Dgram(dgram)) = socket.decided() {
            self.set_on_dgram((socket, dgram), CHOOSE.0, CHOOSE.1, &options);
        }
        Ok(())
    }

    /// The code of a program that the kernel has accepted.
    fn code_of(&self, program: i32) -> Result<Vec<u8>, Errno> {
        let info = self.kernel.bpf_info(program);
        let code = info.and_then(|[_, id, ..]| self.programs.code_of(id));
        let code = code.ok_or(Errno::EOPNOTSUPP)?;
        match code.len() <= CHOOSER_MAX * INSTRUCTION {
            true => Ok(code),
            false => Err(Errno::ENOMEM),
        }
    }
}
