//! Control of the DPDK process: started with the device, supervised by slot 0, ended with the last
//! process that holds the device.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use slipstack_mem::Doorbell;

use super::reason;
use super::rings::Rings;
use super::setup::{self, Answer, MESSAGE_MAX, Order};
use crate::error::DeviceError;
use crate::packets;

/// Name of its program, which is installed beside ours.
const PROGRAM: &str = "slipstack-dpdk";
/// Time that a port may take to start: cards wait for their link.
const START_MAX: Duration = Duration::from_secs(30);
/// Bytes of its standard error that are read.
const WORDS_MAX: usize = 65_536;

/// Everything that a process for the device is started with, and by which it is watched.
#[derive(Debug)]
pub(super) struct Port {
    pub tables: [OwnedFd; 2],
    /// Never written to; hangs up when the last holder of [`Port::life`] has ended.
    pub life: OwnedFd,
    /// Hangs up when the process has ended.
    pub alive: OwnedFd,
    /// Each wakes the thread of a queue.
    pub bells: Vec<Doorbell>,
    pub slots: Vec<(Rings, Doorbell)>,
}

/// A process that has not answered yet.
#[derive(Debug)]
pub(super) struct Starting {
    socket: OwnedFd,
    /// Standard error of the process.
    words: OwnedFd,
}

impl Port {
    pub(super) fn new(tables: [OwnedFd; 2], slots: u16, queues: u16) -> io::Result<Port> {
        let (_, life) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (alive, _) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let slot = |_| Ok((Rings::create()?, Doorbell::new()?));
        Ok(Port {
            tables,
            life,
            alive,
            bells: (0..queues)
                .map(|_| Doorbell::new())
                .collect::<io::Result<_>>()?,
            slots: (0..slots).map(slot).collect::<io::Result<_>>()?,
        })
    }

    /// In the order in which slot 0 takes them.
    pub(super) fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let own = [self.tables[0].as_fd(), self.tables[1].as_fd()];
        let pipes = [self.life.as_fd(), self.alive.as_fd()];
        let bells = self.bells.iter().map(Doorbell::as_fd);
        let slots = self.slots.iter();
        let slots = slots.flat_map(|(rings, bell)| [rings.fd(), bell.as_fd()]);
        let own = own.into_iter().chain(pipes);
        own.chain(bells).chain(slots).collect()
    }

    /// Restores a port with so many queues from [`Port::fds`].
    pub(super) fn from_fds(fds: Vec<OwnedFd>, queues: u16) -> io::Result<Port> {
        let few = || io::Error::from(io::ErrorKind::InvalidData);
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or_else(few);
        let tables = [next()?, next()?];
        let (life, alive) = (next()?, next()?);
        let bell = |_| next().map(Doorbell::from_fd);
        let bells = (0..queues).map(bell).collect::<io::Result<_>>()?;
        let mut slots = Vec::new();
        while let (Some(rings), Some(bell)) = (fds.next(), fds.next()) {
            slots.push((Rings::open(rings)?, Doorbell::from_fd(bell)));
        }
        Ok(Port {
            tables,
            life,
            alive,
            bells,
            slots,
        })
    }

    /// Returns whether the process runs, or is about to.
    pub(super) fn is_alive(&self) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::from_borrowed_fd(self.alive.as_fd(), PollFlags::IN)];
        let asked = poll(&mut fds, Some(&now));
        !(asked.is_ok() && fds[0].revents().contains(PollFlags::HUP))
    }

    /// Tells all slots that frames get nowhere until another process runs.
    pub(super) fn set_stopped(&self) {
        for (rings, _) in &self.slots {
            rings.set_running(false);
        }
    }

    /// Starts a process.
    ///
    /// # Errors
    /// One sentence.
    pub(super) fn start(&self, order: &Order) -> Result<Starting, DeviceError> {
        let program = program().map_err(system)?;
        if !program.exists() {
            return Err(DeviceError::Unsuitable(format!(
                "{} is missing: build Slipstack with DPDK (make dpdk) or install its program there",
                program.display()
            )));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let ends = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (near, far) = ends.map_err(|errno| system(errno.into()))?;
        self.send(&near, order).map_err(system)?;
        let words = memfd_create("slipstack-dpdk-words", MemfdFlags::CLOEXEC);
        let words = words.map_err(|errno| system(errno.into()))?;
        let mut child = Command::new(&program)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir("/")
            .stdin(Stdio::from(far))
            .stdout(Stdio::null())
            .stderr(Stdio::from(words.try_clone().map_err(system)?))
            .spawn()
            .map_err(system)?;
        // The process goes on in a child of its own at once, and this one ends.
        let _ = child.wait();
        Ok(Starting {
            socket: near,
            words,
        })
    }

    fn send(&self, to: &OwnedFd, order: &Order) -> io::Result<()> {
        let life = reopened(&self.life, OFlags::RDONLY)?;
        let alive = reopened(&self.alive, OFlags::WRONLY)?;
        let mut fds = self.fds();
        (fds[2], fds[3]) = (life.as_fd(), alive.as_fd());
        setup::send(to, order, &fds)
    }
}

impl Starting {
    /// Returns the answer of the process, if it has come.
    pub(super) fn poll(&self) -> Option<Answer> {
        let mut bytes = vec![0; MESSAGE_MAX];
        let (len, _) = match packets::receive(&self.socket, &mut bytes) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(_) => (0, Vec::new()),
        };
        let answer = serde_json::from_slice(&bytes[..len]).ok();
        Some(match answer {
            Some(Answer::Ready(told)) => Answer::Ready(told),
            Some(Answer::Failed(sentence)) => {
                Answer::Failed(reason::sentence(&sentence, &self.words()))
            }
            None => {
                let ended = "the process with DPDK ended at its start";
                Answer::Failed(reason::last_words(ended, &self.words()))
            }
        })
    }

    /// Readable when there is an answer.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The answer, as long as it takes.
    pub(super) fn wait(&self) -> Answer {
        let limit = Timespec::try_from(START_MAX).ok();
        let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        let _ = poll(&mut fds, limit.as_ref());
        self.poll().unwrap_or_else(|| {
            let seconds = START_MAX.as_secs();
            Answer::Failed(format!(
                "the process with DPDK did not start in {seconds} s"
            ))
        })
    }

    /// Returns the standard error of the process so far.
    fn words(&self) -> String {
        let mut bytes = vec![0; WORDS_MAX];
        let len = rustix::io::pread(&self.words, &mut bytes, 0).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }
}

/// The other end of a pipe, from one of its ends.
fn reopened(pipe: &OwnedFd, flags: OFlags) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(open(path, flags, Mode::empty())?)
}

fn program() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().unwrap_or(Path::new("/")).join(PROGRAM))
}

pub(super) fn system(source: io::Error) -> DeviceError {
    DeviceError::System {
        doing: "starting the process with DPDK",
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port() -> Port {
        let null = || rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
        Port::new([null(), null()], 2, 3).unwrap()
    }

    #[test]
    fn a_dpdk_process_is_alive_while_it_holds_its_pipe_and_may_be_restarted() {
        let port = port();
        for _ in 0..2 {
            let end = reopened(&port.alive, OFlags::WRONLY).unwrap();
            assert!(port.is_alive());
            drop(end);
            assert!(!port.is_alive());
        }
    }

    #[test]
    fn the_dpdk_process_reads_end_of_file_when_the_last_copy_of_the_port_is_closed() {
        let port = port();
        let end = reopened(&port.life, OFlags::RDONLY).unwrap();
        let copies = port.fds().into_iter();
        let copies = copies.map(|fd| fd.try_clone_to_owned().unwrap()).collect();
        let copy = Port::from_fds(copies, 3).unwrap();
        assert_eq!((copy.slots.len(), copy.bells.len()), (2, 3));
        let mut byte = [0];
        drop(port);
        let waits = rustix::io::read(&end, &mut byte);
        assert_eq!(waits, Err(rustix::io::Errno::AGAIN));
        drop(copy);
        assert_eq!(rustix::io::read(&end, &mut byte), Ok(0));
    }
}
