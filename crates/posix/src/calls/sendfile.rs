//! sendfile: from a file into the send ring.

use std::io::IoSlice;
use std::sync::Arc;

use rustix::fs::SeekFrom;
use slipstack_mem::Descriptor;

use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::socket::Stream;
use crate::socket::description::{Decided, Description, Kind};

/// Bytes read from the file at a time: below malloc's threshold for mappings of their own.
const CHUNK: usize = 64 * 1024;
/// Longest payload of a datagram over IPv6, the longer of both.
const DATAGRAM_MAX: usize = 65_527;
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
        let socket = self.table.socket_of(out)?;
        let stream = match socket.decided() {
            Some(Decided::Stream(stream)) => stream,
            Some(Decided::Foreign(_)) if socket.kind == Kind::Dgram => {
                return self.sendfile_as_datagram(out, file, offset, count);
            }
            Some(Decided::Foreign(it)) => {
                return match self.borrow_to_write(&socket, it) {
                    Some(divert) => Err(divert),
                    None => self.sendfile(out, file, offset, count),
                };
            }
            Some(Decided::Dgram(_)) => return self.sendfile_as_datagram(out, file, offset, count),
            None if socket.kind == Kind::Dgram => return Err(Errno::EDESTADDRREQ.into()),
            Some(Decided::Listener(_)) | None => return Err(Divert::Pipe),
        };
        let file = Descriptor::new(file).ok_or(Errno::EBADF)?;
        let begin = begin_of(file, offset.as_deref())?;
        let total = self.copy_file(&socket, stream, file, begin, count.min(COUNT_MAX))?;
        note_end(file, offset, begin + total as u64)?;
        Ok(total)
    }

    /// The whole is one datagram: each piece but the last is sent as if by MSG_MORE
    /// (splice_direct_to_actor()).
    fn sendfile_as_datagram(
        &self,
        out: i32,
        file: i32,
        offset: Option<&mut i64>,
        count: usize,
    ) -> Outcome<usize> {
        let file = Descriptor::new(file).ok_or(Errno::EBADF)?;
        let begin = begin_of(file, offset.as_deref())?;
        let mut bytes = vec![0; count.min(DATAGRAM_MAX + 1)];
        let mut len = 0;
        while len < bytes.len() {
            let at = begin + len as u64;
            match rustix::io::pread(file.as_fd(), &mut bytes[len..], at)? {
                0 => break,
                got => len += got,
            }
        }
        if len == 0 {
            return Ok(0);
        }
        let sent = self.sendmsg(out, &[IoSlice::new(&bytes[..len])], None, &[], 0)?;
        note_end(file, offset, begin + sent as u64)?;
        Ok(sent)
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
            // A non-blocking socket takes as much as there is room for: no more is read.
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
                        .write_stream(socket, stream, &[IoSlice::new(&buffer[..got])], 0)
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

/// Returns the offset in the file at which the call begins.
fn begin_of(file: Descriptor, offset: Option<&i64>) -> Result<u64, Errno> {
    match offset {
        Some(offset) => u64::try_from(*offset).map_err(|_| Errno::EINVAL),
        None => match rustix::fs::seek(file.as_fd(), SeekFrom::Current(0)) {
            Ok(at) => Ok(at),
            // Linux returns EINVAL for pipes and sockets, which cannot be mapped.
            Err(rustix::io::Errno::SPIPE) => Err(Errno::EINVAL),
            Err(error) => Err(error.into()),
        },
    }
}

fn note_end(file: Descriptor, offset: Option<&mut i64>, end: u64) -> Result<(), Errno> {
    match offset {
        Some(offset) => *offset = i64::try_from(end).unwrap_or(i64::MAX),
        None => {
            rustix::fs::seek(file.as_fd(), SeekFrom::Start(end))?;
        }
    }
    Ok(())
}
