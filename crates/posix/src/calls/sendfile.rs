//! sendfile: from a file into the send ring.

use std::io::IoSlice;
use std::sync::Arc;

use rustix::fs::SeekFrom;
use slipstack_mem::Descriptor;

use crate::description::{Decided, Description};
use crate::errno::Errno;
use crate::lending::Wish;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::socket::Stream;

/// What is read from the file at a time: below malloc's threshold for mappings of their own.
const CHUNK: usize = 64 * 1024;
/// MAX_RW_COUNT.
const COUNT_MAX: usize = 0x7fff_f000;

impl Process {
    /// `sendfile`. To a socket of ours the bytes are copied through memory; from one is EINVAL, as
    /// on Linux.
    pub fn sendfile(
        &self,
        out: i32,
        file: i32,
        offset: Option<&mut i64>,
        count: usize,
    ) -> Outcome<usize> {
        if self.table.is_ours(file) {
            return Err(Errno::EINVAL.into());
        }
        let socket = self.socket_of(out)?;
        let stream = match socket.decided() {
            Some(Decided::Stream(stream)) => stream,
            Some(Decided::Foreign(it)) => return Err(self.borrow(&socket, it, Wish::None)),
            Some(Decided::Listener(_)) | None => return Err(Divert::Pipe),
            Some(Decided::Dgram(_)) => return Err(Errno::EINVAL.into()),
        };
        let file = Descriptor::new(file).ok_or(Errno::EBADF)?;
        let begin = match &offset {
            Some(offset) => u64::try_from(**offset).map_err(|_| Errno::EINVAL)?,
            None => match rustix::fs::seek(file.as_fd(), SeekFrom::Current(0)) {
                Ok(at) => at,
                // Pipes and sockets cannot be mapped, says Linux.
                Err(rustix::io::Errno::SPIPE) => return Err(Errno::EINVAL.into()),
                Err(error) => return Err(error.into()),
            },
        };
        let total = self.copy_file(&socket, stream, file, begin, count.min(COUNT_MAX))?;
        let end = begin + total as u64;
        match offset {
            Some(offset) => *offset = i64::try_from(end).unwrap_or(i64::MAX),
            None => {
                rustix::fs::seek(file.as_fd(), SeekFrom::Start(end))?;
            }
        }
        Ok(total)
    }

    /// Sends `count` bytes of a file from `begin` on; an error only if nothing was sent.
    fn copy_file(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        file: Descriptor,
        begin: u64,
        count: usize,
    ) -> Outcome<usize> {
        let mut buffer = vec![0u8; count.min(CHUNK)];
        let mut total = 0;
        while total < count {
            // A non-blocking socket takes what there is room for: no more is read.
            let room = if socket.is_nonblocking() {
                stream.room().max(1)
            } else {
                CHUNK
            };
            let want = (count - total).min(buffer.len()).min(room);
            let at = begin + total as u64;
            let sent = rustix::io::pread(file.as_fd(), &mut buffer[..want], at)
                .map_err(Divert::from)
                .and_then(|got| match got {
                    0 => Ok((0, 0)),
                    got => self
                        .send_stream(socket, stream, &[IoSlice::new(&buffer[..got])], 0)
                        .map(|sent| (got, sent)),
                });
            match sent {
                Ok((got, sent)) => {
                    total += sent;
                    if got == 0 || sent < got {
                        break;
                    }
                }
                Err(error) if total == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(total)
    }
}
