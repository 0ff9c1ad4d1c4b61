//! The kernel for these tests, by rustix.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt;
use slipstack_mem::Descriptor;
use slipstack_posix::{Errno, Interruptions, Kernel};

/// Messages the process wrote to its standard error.
#[derive(Debug, Default)]
pub struct TestKernel {
    pub warnings: Arc<Mutex<Vec<String>>>,
    /// Threads that work for a call.
    pub inside: Arc<Mutex<Vec<usize>>>,
    /// The next sleep ends as by a jump out of a signal handler.
    pub jumps: Arc<AtomicBool>,
}

pub fn this_thread() -> usize {
    rustix::thread::gettid().as_raw_nonzero().get() as usize
}

impl Kernel for TestKernel {
    fn now_ns(&self) -> u64 {
        slipstack_mem::now_ns()
    }

    fn ppoll(
        &self,
        fds: &mut [libc::pollfd],
        timeout: Option<Duration>,
        _mask: Option<&libc::sigset_t>,
    ) -> Result<usize, Errno> {
        if self.jumps.swap(false, Ordering::Relaxed) {
            std::panic::panic_any("jump");
        }
        let numbers: Vec<Option<Descriptor>> =
            fds.iter().map(|fd| Descriptor::new(fd.fd)).collect();
        let mut polled: Vec<PollFd<'_>> = numbers
            .iter()
            .zip(fds.iter())
            .filter_map(|(number, fd)| {
                let events = PollFlags::from_bits_retain(fd.events as u16);
                Some(PollFd::from_borrowed_fd(number.as_ref()?.as_fd(), events))
            })
            .collect();
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let count = rustix::event::poll(&mut polled, timeout.as_ref())?;
        let mut results = polled.iter().map(|fd| fd.revents().bits() as i16);
        for fd in fds.iter_mut() {
            fd.revents = if fd.fd < 0 {
                0
            } else {
                results.next().unwrap_or(0)
            };
        }
        Ok(count)
    }

    fn signal_point(&self, _mask: Option<&libc::sigset_t>) -> Interruptions {
        Interruptions::default()
    }

    fn interruptions(&self) -> Interruptions {
        Interruptions::default()
    }

    fn thread(&self) -> usize {
        this_thread()
    }

    fn begin_call(&self) {
        self.inside.lock().unwrap().push(self.thread());
    }

    fn end_call(&self) {
        let thread = self.thread();
        self.inside.lock().unwrap().retain(|other| *other != thread);
    }

    fn setsockopt(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        let number = Descriptor::new(fd).ok_or(Errno::EBADF)?;
        let is_on = value.first().is_some_and(|byte| *byte != 0);
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
                sockopt::set_socket_reuseaddr(number.as_fd(), is_on)?;
            }
            (libc::SOL_SOCKET, libc::SO_REUSEPORT) => {
                sockopt::set_socket_reuseport(number.as_fd(), is_on)?;
            }
            (libc::IPPROTO_IP, libc::IP_FREEBIND) => {
                sockopt::set_ip_freebind(number.as_fd(), is_on)?;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => {
                sockopt::set_ipv6_v6only(number.as_fd(), is_on)?;
            }
            (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO | libc::SO_LINGER) => {}
            (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER) => {}
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    fn getsockopt(&self, fd: i32, level: i32, name: i32, value: &mut [u8]) -> Result<usize, Errno> {
        let number = Descriptor::new(fd).ok_or(Errno::EBADF)?;
        let found = match (level, name) {
            // Every filter accepts nothing: one instruction, `ret #0`.
            (libc::SOL_SOCKET, libc::SO_GET_FILTER) => {
                if let Some(room) = value.first_chunk_mut() {
                    *room = [0x06, 0, 0, 0, 0, 0, 0, 0];
                }
                return Ok(1);
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
                sockopt::socket_recv_buffer_size(number.as_fd())? as i32
            }
            _ => return Err(Errno::ENOPROTOOPT),
        };
        value[..4].copy_from_slice(&found.to_ne_bytes());
        Ok(4)
    }

    fn close_range(&self, _first: u32, _last: u32, _flags: u32) -> Result<(), Errno> {
        Err(Errno::ENOSYS)
    }

    fn warn(&self, line: &str) {
        self.warnings.lock().unwrap().push(line.to_owned());
    }
}
