//! BPF programs that choose among the sockets of a SO_REUSEPORT group: checked here, run by
//! engines.

use slipstack_channel::CHOOSER_MAX;

use crate::errno::Errno;
use crate::process::Process;
use crate::socket::description::{Description, Kind};
use crate::socket::options::attaching::{
    BESIDE, INSTRUCTION, chooser_value, looks_beyond, read_filter,
};

impl Process {
    /// The value under which a program that chooses among the sockets of a group is recorded.
    #[cold]
    pub(super) fn chooser_for(&self, socket: &Description, value: &[u8]) -> Result<Vec<u8>, Errno> {
        let code = read_filter(&*self.kernel, value)?;
        self.numbers.keep_spare();
        let is_ours = socket.kind == Kind::Dgram && self.network.policy().is_some();
        if is_ours && looks_beyond(&code, &BESIDE) {
            return Err(Errno::EOPNOTSUPP);
        }
        if is_ours && code.len() > CHOOSER_MAX * INSTRUCTION {
            return Err(Errno::ENOMEM);
        }
        Ok(chooser_value(&code, self.now_ns()))
    }
}
