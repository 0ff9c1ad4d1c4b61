//! sendfile: from a file into the send ring.

use std::io::IoSlice;

use rustix::fs::SeekFrom;
use slipstack_mem::Descriptor;

use crate::description::Decided;
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;

/// What is read from the file at a time.
const CHUNK: usize = 128 * 1024;
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
            Some(Decided::Foreign) => return Err(self.foreign(out).into()),
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
        let count = count.min(COUNT_MAX);
        let mut buffer = vec![0u8; count.min(CHUNK)];
        let mut total = 0;
        let mut failure = None;
        while total < count {
            // A non-blocking socket takes what there is room for: no more is read.
            let room = if socket.is_nonblocking() {
                stream.room().max(1)
            } else {
                CHUNK
            };
            let want = (count - total).min(buffer.len()).min(room);
            let got =
                match rustix::io::pread(file.as_fd(), &mut buffer[..want], begin + total as u64) {
                    Ok(0) => break,
                    Ok(got) => got,
                    Err(error) => {
                        failure = Some(Divert::from(error));
                        break;
                    }
                };
            match self.send_stream(&socket, stream, &[IoSlice::new(&buffer[..got])], 0) {
                Ok(sent) => {
                    total += sent;
                    if sent < got {
                        break;
                    }
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        if total == 0
            && let Some(failure) = failure
        {
            return Err(failure);
        }
        let end = begin + total as u64;
        match offset {
            Some(offset) => *offset = i64::try_from(end).unwrap_or(i64::MAX),
            None => {
                rustix::fs::seek(file.as_fd(), SeekFrom::Start(end))?;
            }
        }
        Ok(total)
    }
}
