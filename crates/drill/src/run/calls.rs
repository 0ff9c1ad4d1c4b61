//! Socket calls: made on a thread of their own, so that they may block while packets come and go.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use slipstack_posix::addr::Family;
use slipstack_posix::{AddrBytes, Divert, Outcome, Process};

use super::messages::{self, Message};
use super::remote::{PORT, remote};
use super::settings::{IpVersion, RunSettings};
use super::{code, constants, info};
use crate::script::{Call, Expr};
use crate::world::World;

/// Largest buffer of one call.
const BYTES_MAX: usize = 64 << 20;

pub struct Calls {
    world: Arc<World>,
    /// The script's descriptor numbers and the process's.
    fds: HashMap<i64, i32>,
    running: Option<Running>,
    /// Address to which `bind` binds.
    local: IpAddr,
    /// The address family of `...`.
    family: Family,
    /// The script has closed a descriptor since the last query.
    has_closed: bool,
}

struct Running {
    thread: JoinHandle<Answer>,
    call: Call,
    /// Time at which it ends by the script.
    end_ns: u64,
    tolerance_ns: u64,
}

/// The result of a call.
struct Answer {
    result: Outcome<i64>,
    out: Out,
    at_ns: u64,
}

/// The values that a call wrote through its pointers.
pub enum Out {
    Nothing,
    Bytes(Vec<u8>),
    Int(i32),
    /// Descriptor and events.
    Ready(Vec<(i32, i64)>),
    Message(Message),
}

pub type Job = Box<dyn FnOnce(&Process) -> (Outcome<i64>, Out) + Send>;

impl Calls {
    pub fn new(world: World, settings: &RunSettings) -> Self {
        Self {
            world: Arc::new(world),
            fds: HashMap::new(),
            running: None,
            local: settings.local(),
            family: match settings.version {
                IpVersion::V4 => Family::V4,
                IpVersion::V6 | IpVersion::Mapped => Family::V6,
            },
            has_closed: false,
        }
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    /// Returns whether the script has closed a descriptor since the last query.
    pub fn take_closed(&mut self) -> bool {
        std::mem::take(&mut self.has_closed)
    }

    /// Makes a call; one with an end goes on in the background if it blocks.
    pub fn begin(
        &mut self,
        call: &Call,
        end_us: Option<u64>,
        begin_ns: u64,
        tolerance_us: u64,
    ) -> Result<(), String> {
        let job = self.job(call)?;
        let world = Arc::clone(&self.world);
        world.begin_call();
        let thread = std::thread::spawn(move || {
            world.calling(|| {
                let (result, out) = job(world.process());
                let at_ns = world.now_ns();
                Answer { result, out, at_ns }
            })
        });
        let running = Running {
            thread,
            call: call.clone(),
            end_ns: begin_ns + end_us.map_or(0, |us| us * 1000),
            tolerance_ns: tolerance_us * 1000,
        };
        match (self.world.settle(), end_us) {
            (true, None) => Err(format!("{} blocks", call.name)),
            (true, Some(_)) => {
                self.running = Some(running);
                Ok(())
            }
            (false, None) => self.check(running, false),
            (false, Some(_)) => self.check(running, true),
        }
    }

    /// Waits for the call in the background.
    pub fn join(&mut self) -> Result<(), String> {
        let Some(running) = self.running.take() else {
            return Ok(());
        };
        while self.world.settle() {
            if self.world.step(running.end_ns + running.tolerance_ns) && self.world.settle() {
                return Err(format!("{} still blocks", running.call.name));
            }
        }
        self.check(running, true)
    }

    fn check(&mut self, running: Running, has_end: bool) -> Result<(), String> {
        let Running {
            thread,
            call,
            end_ns,
            tolerance_ns,
        } = running;
        let answer = thread
            .join()
            .map_err(|_| format!("{} panicked", call.name))?;
        if has_end && answer.at_ns.abs_diff(end_ns) > tolerance_ns {
            let late = (answer.at_ns as f64 - end_ns as f64) / 1e9;
            return Err(format!("{} ended {late:+.6} s off its end", call.name));
        }
        self.check_result(&call, answer.result)?;
        self.check_out(&call, &answer.out)
    }

    fn check_result(&mut self, call: &Call, result: Outcome<i64>) -> Result<(), String> {
        let name = &call.name;
        let wanted = match &call.result {
            None | Some(Expr::Any) => return Ok(()),
            Some(expr) => number(expr)?,
        };
        match (result, &call.errno) {
            (Ok(value), None) if makes_descriptor(name) => {
                self.fds.insert(wanted, value as i32);
                Ok(())
            }
            (Ok(value), None) if value == wanted => Ok(()),
            (Ok(value), _) => Err(format!("{name} gave {value}, expected {}", text(call))),
            (Err(divert), errno) => {
                let found = errno_of(divert);
                let expected = errno.as_deref().and_then(constants::errno);
                match (wanted, expected) {
                    (-1, Some(expected)) if expected == found => Ok(()),
                    _ => Err(format!(
                        "{name} failed with {found}, expected {}",
                        text(call)
                    )),
                }
            }
        }
    }

    fn check_out(&self, call: &Call, out: &Out) -> Result<(), String> {
        match out {
            Out::Nothing => Ok(()),
            Out::Int(found) => same(call, call.args.last(), i64::from(*found)),
            Out::Bytes(bytes) => check_option(call, bytes),
            Out::Ready(ready) => self.check_ready(call, ready),
            Out::Message(message) => messages::check(call, message),
        }
    }

    fn check_ready(&self, call: &Call, ready: &[(i32, i64)]) -> Result<(), String> {
        let (wanted, field): (Vec<&Expr>, _) =
            match call.args.iter().find(|arg| !matches!(arg, Expr::Number(_))) {
                Some(Expr::List(items)) => (items.iter().collect(), "revents"),
                Some(item @ Expr::Struct(_)) => (vec![item], "events"),
                _ => return Ok(()),
            };
        for item in wanted {
            let Expr::Struct(fields) = item else { continue };
            let (Some(fd), Some(events)) = (field_of(fields, "fd"), field_of(fields, field)) else {
                continue;
            };
            let (fd, events) = (self.fd(fd)?, number(events)?);
            let found = ready
                .iter()
                .find(|(ready, _)| *ready == fd)
                .map_or(0, |(_, found)| *found);
            if found != events {
                return Err(format!(
                    "{}: {field} are {found:#x}, expected {events:#x}",
                    call.name
                ));
            }
        }
        Ok(())
    }

    /// Assertions about TCP_INFO of the connection accepted or connected last.
    pub fn check_code(&self, text: &str) -> Result<(), String> {
        let Some(fd) = self
            .fds
            .iter()
            .max_by_key(|(script, _)| **script)
            .map(|(_, live)| *live)
        else {
            return Err("no socket to look at".to_owned());
        };
        let mut bytes = [0; info::LEN];
        let len = self
            .world
            .process()
            .getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)
            .map_err(|divert| format!("TCP_INFO failed with {}", errno_of(divert)))?;
        code::check(text, &|name| info::field(name, &bytes[..len]))
    }

    fn fd(&self, expr: &Expr) -> Result<i32, String> {
        let script = number(expr)?;
        // A number that the script never got is given as it is: it must fail with EBADF.
        Ok(self.fds.get(&script).copied().unwrap_or(script as i32))
    }

    fn job(&mut self, call: &Call) -> Result<Job, String> {
        let args = Args { calls: self, call };
        Ok(match call.name.as_str() {
            "socket" => {
                let (domain, kind, protocol) = match args.call.args.len() {
                    3 => (args.get(0), args.int(1)?, args.int(2)?),
                    _ => return Err("socket takes three arguments".to_owned()),
                };
                let domain = domain.filter(|arg| **arg != Expr::Any);
                let domain =
                    domain.map_or(Ok(i64::from(args.calls.family.number())), number)? as i32;
                simple(move |process| process.socket(domain, kind, protocol).map(i64::from))
            }
            "bind" => {
                let (fd, addr) = (args.fd(0)?, args.addr(1, args.calls.local)?);
                simple(move |process| process.bind(fd, &addr).map(|()| 0))
            }
            "connect" => {
                let (fd, addr) = (args.fd(0)?, args.addr(1, remote(args.calls.local))?);
                simple(move |process| process.connect(fd, &addr).map(|()| 0))
            }
            "listen" => {
                let (fd, backlog) = (args.fd(0)?, args.int(1)?);
                simple(move |process| listen(process, fd, backlog))
            }
            "accept" | "accept4" => {
                let (fd, flags) = (args.fd(0)?, args.int_or(3, 0)?);
                simple(move |process| process.accept4(fd, flags).map(|it| i64::from(it.fd)))
            }
            "shutdown" => {
                let (fd, how) = (args.fd(0)?, args.int(1)?);
                simple(move |process| process.shutdown(fd, how).map(|()| 0))
            }
            "close" => {
                let fd = args.fd(0)?;
                self.has_closed = true;
                simple(move |process| process.close(fd).map(|()| 0))
            }
            "fcntl" => {
                let (fd, command, value) = (args.fd(0)?, args.int(1)?, args.int_or(2, 0)?);
                simple(move |process| process.fcntl(fd, command, value as usize).map(i64::from))
            }
            "read" | "recv" | "recvfrom" => receive(&args)?,
            "write" | "send" | "sendto" => send(&args)?,
            "recvmsg" => messages::receive(&args)?,
            "sendmsg" => messages::send(&args)?,
            "getsockopt" => get_option(&args)?,
            "setsockopt" => set_option(&args)?,
            "ioctl" => ioctl(&args)?,
            "poll" => poll(&args)?,
            "epoll_create" | "epoll_create1" => {
                simple(move |process| process.epoll_create1(0).map(i64::from))
            }
            "epoll_ctl" => epoll_ctl(&args)?,
            "epoll_wait" => epoll_wait(&args)?,
            other => return Err(format!("{other} is no call known here")),
        })
    }
}

pub fn simple(call: impl FnOnce(&Process) -> Outcome<i64> + Send + 'static) -> Job {
    Box::new(move |process| (call(process), Out::Nothing))
}

/// A listener is an intent until its process waits for the first time: that is now.
pub fn listen(process: &Process, fd: i32, backlog: i32) -> Outcome<i64> {
    process.listen(fd, backlog)?;
    let mut fds = [libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }];
    process.poll(&mut fds, Some(Duration::ZERO), None)?;
    Ok(0)
}

/// The arguments of a call.
pub struct Args<'a> {
    calls: &'a Calls,
    call: &'a Call,
}

impl Args<'_> {
    fn get(&self, at: usize) -> Option<&Expr> {
        self.call.args.get(at)
    }

    pub fn need(&self, at: usize) -> Result<&Expr, String> {
        self.get(at)
            .ok_or_else(|| format!("{}: argument {} is missing", self.call.name, at + 1))
    }

    fn int(&self, at: usize) -> Result<i32, String> {
        number(self.need(at)?).map(|value| value as i32)
    }

    pub fn int_or(&self, at: usize, default: i32) -> Result<i32, String> {
        match self.get(at) {
            Some(_) => self.int(at),
            None => Ok(default),
        }
    }

    pub fn fd(&self, at: usize) -> Result<i32, String> {
        self.calls.fd(self.need(at)?)
    }

    /// A length of bytes.
    fn len(&self, at: usize) -> Result<usize, String> {
        let len = number(self.need(at)?)?;
        usize::try_from(len)
            .ok()
            .filter(|len| *len <= BYTES_MAX)
            .ok_or_else(|| format!("{}: {len} bytes", self.call.name))
    }

    /// `...` is the default address; an explicit one has its own family.
    fn addr(&self, at: usize, usual: IpAddr) -> Result<Vec<u8>, String> {
        let (mut ip, mut port, mut family) = (usual, PORT, self.calls.family);
        if let Expr::Struct(fields) = self.need(at)? {
            let field = |names: [&str; 2]| names.iter().find_map(|name| field_of(fields, name));
            if let Some(given) = field(["sin_port", "sin6_port"]) {
                port = number(given)? as u16;
            }
            if let Some(Expr::Text(given)) = field(["sin_addr", "sin6_addr"]) {
                ip = given
                    .parse()
                    .map_err(|_| format!("{given} is no address"))?;
            }
            if let Some(given) = field(["sa_family", "sin6_family"]) {
                family = match number(given)? == i64::from(libc::AF_INET6) {
                    true => Family::V6,
                    false => Family::V4,
                };
            }
        }
        let addr = AddrBytes::new(SocketAddr::from((ip, port)), family);
        Ok(addr.as_bytes().to_vec())
    }
}

fn receive(args: &Args<'_>) -> Result<Job, String> {
    let (fd, len, flags) = (args.fd(0)?, args.len(2)?, args.int_or(3, 0)?);
    Ok(simple(move |process| {
        let mut bytes = vec![0; len];
        let received = process.recvmsg(fd, &mut [IoSliceMut::new(&mut bytes)], &mut [], flags);
        received.map(|received| received.len as i64)
    }))
}

fn send(args: &Args<'_>) -> Result<Job, String> {
    let (fd, len, flags) = (args.fd(0)?, args.len(2)?, args.int_or(3, 0)?);
    let to = match args.get(4) {
        Some(_) => Some(args.addr(4, remote(args.calls.local))?),
        None => None,
    };
    Ok(simple(move |process| {
        let bytes = vec![0; len];
        let sent = process.sendmsg(fd, &[IoSlice::new(&bytes)], to.as_deref(), &[], flags);
        sent.map(|sent| sent as i64)
    }))
}

fn get_option(args: &Args<'_>) -> Result<Job, String> {
    let (fd, level, name) = (args.fd(0)?, args.int(1)?, args.int(2)?);
    Ok(Box::new(move |process| {
        let mut bytes = vec![0; 256];
        match process.getsockopt(fd, level, name, &mut bytes) {
            Ok(len) => {
                bytes.truncate(len);
                (Ok(0), Out::Bytes(bytes))
            }
            Err(divert) => (Err(divert), Out::Nothing),
        }
    }))
}

fn set_option(args: &Args<'_>) -> Result<Job, String> {
    let (fd, level, name) = (args.fd(0)?, args.int(1)?, args.int(2)?);
    let value = option_bytes(args.need(3)?)?;
    Ok(simple(move |process| {
        process.setsockopt(fd, level, name, &value).map(|()| 0)
    }))
}

pub fn option_bytes(expr: &Expr) -> Result<Vec<u8>, String> {
    match expr {
        Expr::Text(text) => Ok(text.clone().into_bytes()),
        Expr::List(items) => {
            let parts: Result<Vec<_>, _> = items.iter().map(option_bytes).collect();
            Ok(parts?.concat())
        }
        Expr::Struct(fields) => {
            let is_time = fields.iter().any(|(name, _)| name.starts_with("tv_"));
            let mut bytes = Vec::new();
            for (_, value) in fields {
                let value = number(value)?;
                match is_time {
                    true => bytes.extend_from_slice(&value.to_ne_bytes()),
                    false => bytes.extend_from_slice(&(value as i32).to_ne_bytes()),
                }
            }
            Ok(bytes)
        }
        other => number(other).map(|value| (value as i32).to_ne_bytes().to_vec()),
    }
}

fn check_option(call: &Call, found: &[u8]) -> Result<(), String> {
    let Some(wanted) = call.args.get(3).filter(|wanted| **wanted != Expr::Any) else {
        return Ok(());
    };
    let wanted = option_bytes(wanted)?;
    match found.starts_with(&wanted) {
        true => Ok(()),
        false => Err(format!(
            "{}: the value is {found:?}, expected {wanted:?}",
            call.name
        )),
    }
}

fn ioctl(args: &Args<'_>) -> Result<Job, String> {
    let (fd, request) = (args.fd(0)?, number(args.need(1)?)? as u64);
    Ok(Box::new(move |process| {
        let mut value = 0;
        let result = process.ioctl(fd, request, &mut value).map(i64::from);
        let out = match result {
            Ok(_) => Out::Int(value),
            Err(_) => Out::Nothing,
        };
        (result, out)
    }))
}

fn poll(args: &Args<'_>) -> Result<Job, String> {
    let Expr::List(items) = args.need(0)? else {
        return Err("poll: expected a list of descriptors".to_owned());
    };
    let mut fds = Vec::new();
    for item in items {
        let Expr::Struct(fields) = item else {
            return Err("poll: expected {fd=…, events=…}".to_owned());
        };
        let fd = field_of(fields, "fd").ok_or("poll: no fd")?;
        let events = field_of(fields, "events").map_or(Ok(0), number)?;
        fds.push(libc::pollfd {
            fd: args.calls.fd(fd)?,
            events: events as i16,
            revents: 0,
        });
    }
    let timeout = args.int(2)?;
    Ok(Box::new(move |process| {
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        let result = process
            .poll(&mut fds, timeout, None)
            .map(|count| count as i64);
        let ready = fds.iter().map(|fd| (fd.fd, i64::from(fd.revents as u16)));
        (result, Out::Ready(ready.collect()))
    }))
}

fn epoll_ctl(args: &Args<'_>) -> Result<Job, String> {
    let (set, op, fd) = (args.fd(0)?, args.int(1)?, args.fd(2)?);
    let events = match args.get(3) {
        Some(Expr::Struct(fields)) => field_of(fields, "events").map_or(Ok(0), number)?,
        _ => 0,
    };
    let event = libc::epoll_event {
        events: events as u32,
        u64: fd as u64,
    };
    Ok(simple(move |process| {
        process.epoll_ctl(set, op, fd, Some(event)).map(|()| 0)
    }))
}

fn epoll_wait(args: &Args<'_>) -> Result<Job, String> {
    let (set, room, timeout) = (args.fd(0)?, args.len(2)?, args.int(3)?);
    Ok(Box::new(move |process| {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; room];
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        let result = process.epoll_wait(set, &mut events, timeout, None);
        let count = result.unwrap_or(0);
        let ready = events[..count]
            .iter()
            .map(|event| (event.u64 as i32, i64::from(event.events)));
        (
            result.map(|count| count as i64),
            Out::Ready(ready.collect()),
        )
    }))
}

fn makes_descriptor(name: &str) -> bool {
    [
        "socket",
        "accept",
        "accept4",
        "epoll_create",
        "epoll_create1",
    ]
    .contains(&name)
}

pub fn field_of<'a>(fields: &'a [(String, Expr)], name: &str) -> Option<&'a Expr> {
    fields
        .iter()
        .find(|(field, _)| field == name)
        .map(|(_, value)| value)
}

pub fn number(expr: &Expr) -> Result<i64, String> {
    match expr {
        Expr::Number(value) => Ok(*value),
        Expr::Names(names) => names.iter().try_fold(0, |all, name| {
            let value =
                constants::number(name).ok_or_else(|| format!("{name} is not known here"))?;
            Ok(all | value)
        }),
        Expr::List(items) => match items.as_slice() {
            [item] => number(item),
            _ => Err("expected one number".to_owned()),
        },
        other => Err(format!("expected a number, not {other:?}")),
    }
}

fn same(call: &Call, wanted: Option<&Expr>, found: i64) -> Result<(), String> {
    match wanted {
        None | Some(Expr::Any) => Ok(()),
        Some(wanted) if number(wanted)? == found => Ok(()),
        Some(wanted) => Err(format!(
            "{}: the value is {found}, expected {wanted:?}",
            call.name
        )),
    }
}

fn errno_of(divert: Divert) -> i32 {
    match divert {
        Divert::Errno(errno) => errno.0,
        Divert::Stopped => libc::EINTR,
        Divert::Pipe => libc::EPIPE,
        // Nothing is behind these sockets: the kernel would say that the number is not open.
        Divert::Kernel | Divert::KernelFirst | Divert::KernelRead | Divert::KernelLent => {
            libc::EBADF
        }
    }
}

fn text(call: &Call) -> String {
    match (&call.result, &call.errno) {
        (Some(_), Some(errno)) => format!("-1 {errno}"),
        (Some(result), None) => format!("{}", number(result).unwrap_or(0)),
        (None, _) => "anything".to_owned(),
    }
}
