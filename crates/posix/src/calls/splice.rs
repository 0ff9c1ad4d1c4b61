//! splice between a socket and a pipe. The bytes are copied through memory.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use slipstack_mem::Descriptor;

use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::wait::Plan;
use crate::ready::bits;
use crate::socket::Stream;
use crate::socket::borrowed::ReadRequest;
use crate::socket::description::{Decided, Description, Kind};

/// Bytes moved through memory at a time.
const CHUNK: usize = 64 * 1024;
/// A pipe that is ready for writing takes so many bytes without waiting (PIPE_BUF).
const PIPE_SURE: usize = 4096;

const SPLICE_F_NONBLOCK: u32 = 2;
const SPLICE_F_MORE: u32 = 4;
/// With SPLICE_F_MOVE and SPLICE_F_GIFT.
const SPLICE_F_ALL: u32 = 15;

/// Arguments of splice.
#[derive(Clone, Copy, Debug)]
pub struct Splice {
    pub from: i32,
    pub to: i32,
    pub len: usize,
    pub flags: u32,
}

impl Process {
    /// `splice`, of which one end is ours. Neither has offsets.
    pub fn splice(&self, asked: Splice) -> Outcome<usize> {
        if asked.len == 0 {
            return Ok(0);
        }
        if asked.flags & !SPLICE_F_ALL != 0 {
            return Err(Errno::EINVAL.into());
        }
        match (self.table.is_ours(asked.from), self.table.is_ours(asked.to)) {
            (true, false) => self.splice_out(asked),
            (false, true) => self.splice_in(asked),
            // One of the two is to be a pipe.
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Moves bytes from a socket into a pipe.
    fn splice_out(&self, asked: Splice) -> Outcome<usize> {
        let pipe = pipe_at(asked.to, OFlags::WRONLY)?;
        let socket = self.table.socket_of(asked.from)?;
        let stream = match socket.decided() {
            _ if socket.kind == Kind::Dgram => return self.splice_datagram(&socket, pipe, asked),
            Some(Decided::Stream(stream)) => stream,
            Some(Decided::Foreign(it)) => {
                let request = ReadRequest::Some(asked.len as u64);
                return match self.borrow(&socket, it, request) {
                    Some(divert) => Err(divert),
                    None => self.splice_out(asked),
                };
            }
            _ => return Err(Errno::ENOTCONN.into()),
        };
        await_space(pipe, asked.flags)?;
        let mut buffer = vec![0; asked.len.min(CHUNK)];
        let mut total = 0;
        while total < asked.len {
            let want = (asked.len - total).min(buffer.len());
            // Only the socket's own flag decides whether to wait for it (tcp_splice_read()).
            let wait = if total > 0 { libc::MSG_DONTWAIT } else { 0 };
            let bufs = &mut [IoSliceMut::new(&mut buffer[..want])];
            let got = match self.recvmsg(asked.from, bufs, &mut [], libc::MSG_PEEK | wait) {
                Ok(received) => received.len,
                Err(_) if total > 0 => break,
                Err(error) => return Err(error),
            };
            let moved = fill(pipe, &buffer[..got])?;
            if moved == 0 && got > 0 && total == 0 {
                // Another writer has filled the pipe meanwhile.
                await_space(pipe, asked.flags)?;
                continue;
            }
            stream.discard(moved);
            total += moved;
            if moved < got || got == 0 {
                break;
            }
        }
        Ok(total)
    }

    /// Moves one datagram into a pipe. The rest of one that is longer than `asked.len` or the
    /// pipe's room is lost (copy_splice_read()).
    fn splice_datagram(
        &self,
        socket: &Description,
        pipe: Descriptor,
        asked: Splice,
    ) -> Outcome<usize> {
        let dgram = match socket.decided() {
            // A peek from a later byte on (SO_PEEK_OFF) would not find each datagram.
            Some(Decided::Dgram(dgram)) if socket.peek_from().is_none() => dgram,
            _ => {
                await_space(pipe, asked.flags)?;
                return self.take_datagram(pipe, asked, 0);
            }
        };
        loop {
            await_space(pipe, asked.flags)?;
            // Only the socket's own flag decides whether to wait for it (sock_read_iter()). The
            // kernel holds the pipe's lock meanwhile; here another writer may fill it.
            self.recvmsg(asked.from, &mut [], &mut [], libc::MSG_PEEK)?;
            if !has_space(pipe)? {
                continue;
            }
            match self.take_datagram(pipe, asked, libc::MSG_DONTWAIT) {
                // Another thread has taken it, or there is none.
                Err(Divert::Kernel | Divert::Errno(Errno::EAGAIN))
                    if dgram.is_shut_for_reading() =>
                {
                    return Ok(0);
                }
                Err(Divert::Kernel | Divert::Errno(Errno::EAGAIN)) if !socket.is_nonblocking() => {}
                outcome => return outcome,
            }
        }
    }

    fn take_datagram(&self, pipe: Descriptor, asked: Splice, flags: i32) -> Outcome<usize> {
        let mut buffer = vec![0; asked.len.min(CHUNK).min(room_of(pipe)?)];
        let bufs = &mut [IoSliceMut::new(&mut buffer)];
        let got = self.recvmsg(asked.from, bufs, &mut [], flags)?.len;
        fill_with_datagram(pipe, &buffer[..got], asked.flags)
    }

    /// Moves bytes from a pipe into a socket.
    fn splice_in(&self, asked: Splice) -> Outcome<usize> {
        let pipe = pipe_at(asked.from, OFlags::RDONLY)?;
        let socket = self.table.socket_of(asked.to)?;
        let is_short = is_short(pipe, asked.flags)?;
        match socket.decided() {
            Some(Decided::Stream(stream)) => self.drain(pipe, (&socket, stream), asked, is_short),
            Some(Decided::Foreign(it)) if socket.kind == Kind::Stream => {
                match self.borrow_to_write(&socket, it) {
                    Some(divert) => Err(divert),
                    None => self.splice_in(asked),
                }
            }
            Some(Decided::Dgram(_) | Decided::Foreign(_)) => {
                let mut buffer = vec![0; asked.len.min(CHUNK)];
                match take(pipe, &mut buffer, is_short)? {
                    0 => Ok(0),
                    got => self.sendmsg(asked.to, &[IoSlice::new(&buffer[..got])], None, &[], 0),
                }
            }
            Some(Decided::Listener(_)) | None if socket.kind == Kind::Stream => Err(Divert::Pipe),
            _ => Err(Errno::EDESTADDRREQ.into()),
        }
    }

    /// Sends a pipe's bytes, as far as the socket has room: nothing that was taken out of a pipe
    /// can be put back.
    fn drain(
        &self,
        pipe: Descriptor,
        (socket, stream): (&Arc<Description>, &Stream),
        asked: Splice,
        is_short: bool,
    ) -> Outcome<usize> {
        let mut buffer = vec![0; asked.len.min(CHUNK)];
        let more = if asked.flags & SPLICE_F_MORE != 0 {
            libc::MSG_MORE
        } else {
            0
        };
        let mut total = 0;
        while total < asked.len {
            if !await_bytes(pipe, is_short || total > 0)? {
                match total {
                    0 => return Err(Errno::EAGAIN.into()),
                    _ => break,
                }
            }
            let may_wait = !socket.is_nonblocking() && total == 0;
            if !self.await_room(socket, stream, may_wait)? {
                match total {
                    0 => return Err(Errno::EAGAIN.into()),
                    _ => break,
                }
            }
            let want = (asked.len - total)
                .min(buffer.len())
                .min(stream.room().max(1));
            let got = rustix::io::read(pipe.as_fd(), &mut buffer[..want])?;
            if got == 0 {
                break;
            }
            self.send_all(socket, stream, &buffer[..got], more)?;
            total += got;
        }
        Ok(total)
    }

    /// Waits until something can be sent. `false`: it may not wait.
    fn await_room(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        may_wait: bool,
    ) -> Outcome<bool> {
        let is_ready = || stream.readiness() & (bits::OUT | bits::ERR | bits::HUP) != 0;
        if is_ready() {
            return Ok(true);
        }
        self.turn_if_idle(stream.attachment());
        if is_ready() || !may_wait {
            return Ok(is_ready());
        }
        stream.want_space();
        let plan = Plan::of_call(&*self.kernel, socket, &socket.send_timeout_ns, &[]);
        let found = self.wait(&plan, |_| Ok(is_ready().then_some(())))?;
        Ok(found.is_some())
    }

    /// Sends bytes taken out of a pipe, all of them unless the connection ends.
    fn send_all(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        bytes: &[u8],
        more: i32,
    ) -> Outcome<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.write_stream(socket, stream, &[IoSlice::new(rest)], more) {
                Ok(sent) => rest = &rest[sent..],
                // Another thread has taken the room.
                Err(Divert::Errno(Errno::EAGAIN)) => {
                    self.await_room(socket, stream, true)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The descriptor of a pipe that is open for `access`.
fn pipe_at(number: i32, access: OFlags) -> Result<Descriptor, Errno> {
    let pipe = Descriptor::new(number).ok_or(Errno::EBADF)?;
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(pipe.as_fd())?.st_mode);
    if kind != rustix::fs::FileType::Fifo {
        return Err(Errno::EINVAL);
    }
    let mode = rustix::fs::fcntl_getfl(pipe.as_fd())? & OFlags::RWMODE;
    match mode == access || mode == OFlags::RDWR {
        true => Ok(pipe),
        false => Err(Errno::EBADF),
    }
}

/// Whether the pipe is not waited for.
fn is_short(pipe: Descriptor, flags: u32) -> Result<bool, Errno> {
    let is_nonblocking = rustix::fs::fcntl_getfl(pipe.as_fd())?.contains(OFlags::NONBLOCK);
    Ok(is_nonblocking || flags & SPLICE_F_NONBLOCK != 0)
}

fn looked(pipe: Descriptor, what: PollFlags, is_short: bool) -> Result<PollFlags, Errno> {
    let fd = pipe.as_fd();
    let mut fds = [PollFd::from_borrowed_fd(fd, what)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut fds, is_short.then_some(&now))?;
    Ok(fds[0].revents())
}

/// Whether the pipe has bytes, or is at its end, after a wait if that may be.
fn await_bytes(pipe: Descriptor, is_short: bool) -> Result<bool, Errno> {
    Ok(!looked(pipe, PollFlags::IN, is_short)?.is_empty())
}

/// Waits until a pipe has room, if that may be. One without a reader has none (wait_for_space()).
fn await_space(pipe: Descriptor, flags: u32) -> Outcome<()> {
    let found = looked(pipe, PollFlags::OUT, is_short(pipe, flags)?)?;
    if found.contains(PollFlags::ERR) {
        return Err(Divert::Pipe);
    }
    match found.is_empty() {
        true => Err(Errno::EAGAIN.into()),
        false => Ok(()),
    }
}

fn has_space(pipe: Descriptor) -> Result<bool, Errno> {
    match looked(pipe, PollFlags::OUT, true) {
        Ok(found) => Ok(!found.is_empty()),
        // A signal is pending, which poll() tells only where nothing is ready.
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Bytes that the pages fit that a pipe has free, at least one.
fn room_of(pipe: Descriptor) -> Result<usize, Errno> {
    let page = rustix::param::page_size();
    let size = rustix::pipe::fcntl_getpipe_size(pipe.as_fd())?;
    let used = usize::try_from(rustix::io::ioctl_fionread(pipe.as_fd())?).unwrap_or(usize::MAX);
    let free = (size / page).saturating_sub(used.div_ceil(page));
    Ok(free.max(1) * page)
}

/// Puts bytes into a pipe as far as it has room.
fn fill(pipe: Descriptor, bytes: &[u8]) -> Result<usize, Divert> {
    let mut done = 0;
    while done < bytes.len() {
        if !has_space(pipe)? {
            break;
        }
        let piece = &bytes[done..bytes.len().min(done + PIPE_SURE)];
        match rustix::io::write(pipe.as_fd(), piece) {
            Ok(count) => done += count,
            // Another writer has taken the room; a signal has ended the wait for more.
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
            Err(rustix::io::Errno::PIPE) if done == 0 => return Err(Divert::Pipe),
            Err(_) if done > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// Puts a datagram's bytes into a pipe as far as it has room, as the kernel does. If another writer
/// has taken all of it since there was some, waits for more, if that may be.
fn fill_with_datagram(pipe: Descriptor, bytes: &[u8], flags: u32) -> Result<usize, Divert> {
    loop {
        let done = fill(pipe, bytes)?;
        if done > 0 || bytes.is_empty() {
            return Ok(done);
        }
        if is_short(pipe, flags)? {
            return Ok(0);
        }
        match looked(pipe, PollFlags::OUT, false) {
            // The datagram is in no queue any more.
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes the bytes that a pipe has now.
fn take(pipe: Descriptor, buffer: &mut [u8], is_short: bool) -> Result<usize, Errno> {
    match await_bytes(pipe, is_short)? {
        true => Ok(rustix::io::read(pipe.as_fd(), buffer)?),
        false => Err(Errno::EAGAIN),
    }
}
