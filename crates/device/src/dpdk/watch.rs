//! Supervision of the DPDK process by slot 0, which restarts it if it has ended.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use slipstack_mem::PrivateFd;

use super::process::{Port, Starting};
use super::setup::{Answer, Order};

/// Time after a failed start at which the next one is tried.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum State {
    Running,
    Starting(Starting),
    /// Until the timer rings.
    Waiting,
}

/// The process of a device as its slot 0 sees it.
#[derive(Debug)]
pub(super) struct Watch {
    port: Port,
    order: Order,
    state: State,
    /// Everything that slot 0 sleeps on.
    epoll: PrivateFd,
    timer: PrivateFd,
    notice: Option<String>,
    /// The last failure was reported.
    has_told: bool,
}

impl Watch {
    /// `bell`: of slot 0.
    pub(super) fn new(port: Port, order: Order, bell: BorrowedFd<'_>) -> io::Result<Watch> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        add(&epoll, bell)?;
        add(&epoll, timer.as_fd())?;
        add(&epoll, port.alive.as_fd())?;
        Ok(Watch {
            port,
            order,
            state: State::Running,
            epoll: epoll.into(),
            timer: timer.into(),
            notice: None,
            has_told: false,
        })
    }

    pub(super) fn poll_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        let own = [self.epoll.as_raw_fd(), self.timer.as_raw_fd()];
        let port = self.port.fds().into_iter().map(|fd| fd.as_raw_fd());
        own.into_iter().chain(port).collect()
    }

    pub(super) fn take_notice(&mut self) -> Option<String> {
        self.notice.take()
    }

    /// Does due work; costs a system call or two.
    pub(super) fn turn(&mut self) {
        match &self.state {
            State::Running if self.port.is_alive() => {}
            State::Running => {
                let _ = epoll::delete(&self.epoll, self.port.alive.as_fd());
                self.port.set_stopped();
                self.notice =
                    Some("the process with DPDK has ended; it is started again".to_owned());
                self.start();
            }
            State::Starting(starting) => match starting.poll() {
                None => {}
                Some(Answer::Ready(_)) => {
                    let _ = add(&self.epoll, self.port.alive.as_fd());
                    self.notice = Some("the process with DPDK runs again".to_owned());
                    self.has_told = false;
                    self.state = State::Running;
                }
                Some(Answer::Failed(sentence)) => self.fail(sentence),
            },
            State::Waiting => {
                if rustix::io::read(&self.timer, &mut [0; 8]).is_ok() {
                    self.start();
                }
            }
        }
    }

    fn start(&mut self) {
        match self.port.start(&self.order) {
            Ok(starting) => {
                let _ = add(&self.epoll, starting.socket());
                self.state = State::Starting(starting);
            }
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn fail(&mut self, sentence: String) {
        if !self.has_told {
            self.has_told = true;
            self.notice = Some(sentence);
        }
        let timer = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: PAUSE.as_secs().cast_signed(),
                tv_nsec: 0,
            },
        };
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer);
        self.state = State::Waiting;
    }
}

/// Adds a descriptor to those that end a sleep.
fn add(epoll: &OwnedFd, fd: BorrowedFd<'_>) -> io::Result<()> {
    let data = epoll::EventData::new_u64(0);
    Ok(epoll::add(epoll, fd, data, epoll::EventFlags::IN)?)
}
