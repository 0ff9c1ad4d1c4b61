//! Options of datagram sockets that live in another process.

use crate::calls::options::sockopt::note_beside;
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::socket::borrowed::Borrowed;
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::options::attaching::{
    ATTACH, CHOOSE, CHOOSE_EXTENDED, DETACH, UNCHOOSE, program,
};

impl Process {
    /// Sets an option of a datagram socket where it lives, which judges it. `None`: that is
    /// here, or it is a connection.
    pub(crate) fn set_elsewhere(
        &self,
        socket: &Description,
        option: (i32, i32),
        value: &[u8],
    ) -> Option<Result<(), Errno>> {
        match socket.decided() {
            Some(Decided::Foreign(it)) if socket.kind == Kind::Dgram => {
                Some(self.set_on_borrowed(socket, it, option, value))
            }
            _ => None,
        }
    }

    /// Sets an option where the socket lives, and records the options that calls of this process
    /// read.
    fn set_on_borrowed(
        &self,
        socket: &Description,
        it: &Borrowed,
        (level, name): (i32, i32),
        value: &[u8],
    ) -> Result<(), Errno> {
        if (level, name) == CHOOSE_EXTENDED {
            // The number of the program's descriptor means nothing to the owner.
            return Err(Errno::EOPNOTSUPP);
        }
        if let ATTACH | CHOOSE = (level, name) {
            let code = self.program_of(value)?;
            return self.set_where_it_lives(it, (level, name), &code);
        }
        self.set_where_it_lives(it, (level, name), value)?;
        if let DETACH | UNCHOOSE = (level, name) {
            return Ok(());
        }
        let options = {
            let mut cold = socket.cold.lock();
            cold.options.set(level, name, value);
            cold.options.clone()
        };
        note_beside(socket, (level, name), value, &options)
    }

    /// Sets an option of a datagram socket for another process, which gives a program of classic
    /// BPF by its instructions.
    pub(crate) fn set_datagram_option(
        &self,
        fd: i32,
        (level, name): (i32, i32),
        value: &[u8],
    ) -> Outcome<()> {
        let set = match (level, name) {
            ATTACH | CHOOSE => self.setsockopt(fd, level, name, &program(value)),
            _ => self.setsockopt(fd, level, name, value),
        };
        match set {
            Err(Divert::Kernel) => Ok(self.kernel.setsockopt(fd, level, name, value)?),
            outcome => outcome,
        }
    }
}
