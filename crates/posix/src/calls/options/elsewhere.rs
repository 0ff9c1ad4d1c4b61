//! Options of sockets that live in another process.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::calls::options::sockopt::{is_time_limit, note_beside};
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::socket::borrowed::Borrowed;
use crate::socket::borrowed::requests::{Call, Request};
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::options::attaching::{
    ATTACH, CHOOSE, CHOOSE_EXTENDED, DETACH, UNCHOOSE, program,
};
use crate::socket::options::record::Options;

/// Bytes of all options of a connection at most.
const OPTIONS_LEN_MAX: usize = 16 << 10;

impl Process {
    /// Asks for the options that were set before this program had the socket.
    pub(crate) fn learn_options(&self, socket: &Description) {
        let Some(Decided::Foreign(it)) = socket.decided() else {
            return;
        };
        if !it.lacks_options() {
            return;
        }
        let request = Request::new(Call::Options, [0, 0]);
        if let Some((reply, text)) = self.ask_owner(it, &request, &[], OPTIONS_LEN_MAX) {
            if reply.flags != 0 {
                it.note_shut();
            }
            let mut options = Options::read(&text);
            let mut cold = socket.cold.lock();
            for set in cold.options.all() {
                options.set(set.level, set.name, &set.value);
            }
            cold.options = options.clone();
            drop(cold);
            for set in options
                .all()
                .iter()
                .filter(|set| is_time_limit(set.level, set.name))
            {
                let _ = note_beside(socket, (set.level, set.name), &set.value, &options);
                // The owner was slow, so that the pair was made without it.
                if socket.kind == Kind::Stream
                    && it.is_taken()
                    && let Some(number) = socket.kernel_number()
                {
                    let (level, name) = (set.level, set.name);
                    let _ = self
                        .kernel
                        .setsockopt(number.number(), level, name, &set.value);
                }
            }
            it.note_options();
        }
    }

    /// Learns the options of a datagram socket that lives elsewhere, and where its peeks go on, as
    /// far as its owner tells.
    pub(crate) fn learn_of_borrowed(&self, socket: &Description) {
        self.learn_options(socket);
        if let Some(Decided::Foreign(it)) = socket.decided()
            && socket.kind == Kind::Dgram
            && !socket.is_brought()
            && !it.is_owner_silent()
        {
            let request = Request::new(Call::PeekOffset, [0, 0]);
            if let Some((reply, _)) = self.ask_owner(it, &request, &[], 0)
                && reply.error == 0
            {
                socket.peek_offset.store(reply.flags, Ordering::Relaxed);
            }
        }
    }

    /// Sets an option of a datagram socket where it lives, which judges it. `None`: that is
    /// here, or it is a connection.
    pub(crate) fn set_elsewhere(
        &self,
        socket: &Arc<Description>,
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
        socket: &Arc<Description>,
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
            self.set_where_it_lives((socket, it), (level, name), &code)?;
            if (level, name) == ATTACH {
                socket.cold.lock().options.set(level, name, &code);
            }
            return Ok(());
        }
        self.set_where_it_lives((socket, it), (level, name), value)?;
        if let DETACH | UNCHOOSE = (level, name) {
            if (level, name) == DETACH {
                socket.cold.lock().options.set(ATTACH.0, ATTACH.1, &[]);
            }
            return Ok(());
        }
        // For a part of this process's own, if it comes to have one.
        if socket.is_from_elsewhere() && !socket.is_brought() {
            let _ = self.network.set_membership(socket, level, name, value);
        }
        let options = {
            let mut cold = socket.cold.lock();
            cold.options.set(level, name, value);
            cold.options.clone()
        };
        note_beside(socket, (level, name), value, &options)?;
        if is_time_limit(level, name)
            && let Some(number) = socket.kernel_number()
        {
            // A program that this one executes finds it at the end of the pair.
            self.kernel
                .setsockopt(number.number(), level, name, value)?;
        }
        Ok(())
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
