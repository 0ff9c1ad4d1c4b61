//! Connections that go to another program: over a unix socket (SCM_RIGHTS), or by the file actions
//! of `posix_spawn`.
//!
//! The other program gets one end of a pair, and a steward of ours moves the bytes, as for a forked
//! child. It cannot signal that it wants to read, so the steward reads from the beginning where the
//! receiver is expected to. A bound socket is passed as a kernel socket from which the other
//! program makes its own.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::OFlags;
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use slipstack_mem::{Descriptor, raised};

use crate::errno::Errno;
use crate::lending::Lending;
use crate::lending::abstract_name;
use crate::lending::lender::Lender;
use crate::lending::post::Charge;
use crate::lending::pump::{Origin, Pump};
use crate::process::Process;
use crate::process::lending::borrow::{UserKind, limit_times};
use crate::process::lending::ended::takes_nothing;
use crate::process::lending::owner::{lend, names_of};
use crate::process::lending::starting::foreign;
use crate::process::lending::starting::is_lendable;
use crate::process::lending::word::{Word, leave_word, program_filter_at, take_word};
use crate::process::place::share_datagrams;
use crate::process::table::Entry;
use crate::process::table::Table;
use crate::socket::borrowed::child_message::{Message, MessageKind, join};
use crate::socket::borrowed::control::Control;
use crate::socket::borrowed::{Borrowed, Names, PairName, ReadRequest};
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::kernel_socket::kernel_name;
use crate::socket::kernel_socket::replace;
use crate::socket::options::attaching::{ATTACH, filter_of};
use crate::socket::options::options_of;

/// A connection on its way to another program.
#[derive(Debug)]
struct PassedConnection {
    socket: Arc<Description>,
    ours: OwnedFd,
    theirs: OwnedFd,
    reads: bool,
}

/// Connections on their way to another program, each once.
#[derive(Debug, Default)]
pub struct Passing(Vec<PassedConnection>);

impl Passing {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Process {
    /// The number that another program is to get in place of `fd`; `None`: `fd` itself will do.
    /// [`Process::end_passing`] must follow. `reads`: it is to read from it, although this program
    /// has it too.
    pub fn prepare_passing(&self, passing: &mut Passing, fd: i32, reads: bool) -> Option<i32> {
        let socket = self.table.socket(fd)?;
        match socket.decided() {
            Some(Decided::Stream(_)) => {
                let is_it =
                    |connection: &&mut PassedConnection| Arc::ptr_eq(&connection.socket, &socket);
                if let Some(connection) = passing.0.iter_mut().find(is_it) {
                    connection.reads |= reads;
                    return Some(connection.theirs.as_raw_fd());
                }
                let connection = self.make_passed_connection(socket, reads).ok()?;
                let number = connection.theirs.as_raw_fd();
                passing.0.push(connection);
                Some(number)
            }
            // The receiver makes its own part, from the kernel's: that is under the descriptor
            // number, or beside the end of a pair there.
            Some(Decided::Foreign(it)) if socket.kind == Kind::Dgram => {
                self.learn_of_borrowed(&socket);
                let kept = it.kernel_part.lock().filter(|_| it.is_taken());
                let part = kept.or_else(|| socket.kernel_number());
                self.leave_word(&socket, part, it.remote());
                kept.map(Descriptor::number)
            }
            Some(Decided::Foreign(it)) => {
                // From now on another program has the pair too, which may not be heard.
                it.turns.never_ask();
                let is_held = self.hold_borrowed(&socket, it, UserKind::WithLibrary);
                it.stop_counting(&*self.kernel, &socket);
                if is_held {
                    it.pass(reads);
                }
                None
            }
            None if !is_bound(&socket) => {
                if self.name_unbound(&socket) {
                    self.leave_word(&socket, socket.kernel_number(), None);
                }
                None
            }
            Some(Decided::Dgram(dgram)) => {
                let remote = *dgram.remote.lock();
                self.name_for_heir(&socket, dgram);
                share_datagrams(&*self.kernel, &socket, dgram);
                self.leave_word(&socket, socket.kernel_number(), remote);
                None
            }
            None | Some(Decided::Listener(_)) => {
                self.leave_word(&socket, socket.kernel_number(), None);
                None
            }
        }
    }

    /// Gives a socket that is not bound a kernel's part, in which word can be left for a receiver.
    /// Returns whether it has one.
    pub(crate) fn name_unbound(&self, socket: &Arc<Description>) -> bool {
        // Another process that has it may have bound it meanwhile, and serves it.
        let name = socket.kernel_number().and_then(kernel_name);
        if name.is_some_and(|name| name.port() != 0) {
            return false;
        }
        let is_made = socket.materialize_for_exec(self);
        if let Some(number) = socket.kernel_number().filter(|_| is_made) {
            let _ = sockopt::set_ip_freebind(number.as_fd(), true);
        }
        if is_made && socket.kind == Kind::Dgram {
            // Whichever process binds it, each will have a queue of its own.
            socket.note_sharing();
            socket.leave_unread();
        }
        is_made
    }

    pub(crate) fn leave_word(
        &self,
        socket: &Description,
        part: Option<Descriptor>,
        remote: Option<SocketAddr>,
    ) {
        let inode = self.ids.inode_of(socket);
        let word = Word::of(socket, inode, remote);
        leave_word(&*self.kernel, socket, part, &word);
    }

    fn make_passed_connection(
        &self,
        socket: Arc<Description>,
        reads: bool,
    ) -> Result<PassedConnection, Errno> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let (ours, theirs) = self.lending.listed_pair(|| {
            let pair = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
            Ok((raised(pair.0).unlisted(), raised(pair.1).unlisted()))
        })?;
        self.lending
            .abstract_names
            .put(&ours, &names_of(&self.ids, &socket));
        let mut is_set = limit_times(&theirs, &socket);
        if socket.is_nonblocking() {
            is_set = is_set.and_then(|()| Ok(rustix::io::ioctl_fionbio(&theirs, true)?));
        }
        if let Err(error) = is_set {
            self.lending.close_listed(ours);
            self.lending.close_listed(theirs);
            return Err(error);
        }
        // Before the program can close it.
        lend(&socket);
        Ok(PassedConnection {
            socket,
            ours,
            theirs,
            reads,
        })
    }

    /// Completes the passing: if they were sent, their bytes are moved from now on.
    pub fn end_passing(&'static self, passing: Passing, is_gone: bool) {
        for connection in passing.0 {
            let PassedConnection {
                socket,
                ours,
                theirs,
                reads,
            } = connection;
            self.lending.close_listed(theirs);
            let number = is_gone.then(|| self.steward_number(&socket)).flatten();
            let Some(number) = number else {
                self.take_back(&socket);
                self.lending.close_listed(ours);
                continue;
            };
            self.lending.post.note_pump();
            let mut pump = Pump::new(socket, number, ours, Origin::UNHEARD);
            if reads {
                pump.read(ReadRequest::All);
            }
            self.charge(Charge::Pump(Box::new(pump)));
        }
    }

    /// The numbers of connections that a new program inherits as they are.
    pub fn inherited_connections(&self) -> Vec<i32> {
        self.table.inherited(is_lendable)
    }

    /// The numbers of other sockets that a program would have.
    #[must_use]
    pub fn inherited_unconnected(&self) -> Vec<i32> {
        self.table.inherited(|socket| !is_lendable(socket))
    }

    /// Handles `fd`, which another program has sent: a connection that it lends, or a socket that
    /// it has bound.
    pub fn receive(&'static self, fd: i32) {
        let Some(number) = Descriptor::new(fd) else {
            return;
        };
        if let Some((names, pair)) = abstract_name::read(number) {
            self.receive_connection(number, &names, pair);
        } else if let Some(letter) =
            kind_letter(number).filter(|_| self.network.has_part_in(number))
        {
            let (is_nonblocking, word) = take_word(&*self.kernel, fd);
            let ending = if is_nonblocking { "n" } else { "" };
            let inode = word.as_ref().map_or(0, |word| word.inode);
            self.inherit(&format!("{letter}{fd}{ending}/{inode}"));
            if let Some(remote) = word.and_then(|word| word.remote) {
                self.table.connect_received(fd, remote);
            }
        }
    }
}

impl Process {
    /// An end of a pair has come under `number`.
    fn receive_connection(&'static self, number: Descriptor, names: &Names, pair: PairName) {
        if let Some(known) = self.table.find_pair(&pair) {
            return self.receive_again(number, &known);
        }
        self.lending.arrivals.fetch_add(1, Ordering::Relaxed);
        let joined = self.join(number, names);
        let keeps_out = self.lending.keeps_out.load(Ordering::Relaxed);
        let is_half_closed = joined.is_none() && !keeps_out && takes_nothing(number);
        let it = Borrowed::sent(names, pair, joined);
        if is_half_closed {
            // Once the peer has ended its direction too, the pair looks as after a reset.
            it.hears_end();
        }
        let flags = rustix::fs::fcntl_getfl(number.as_fd());
        let is_nonblocking = flags.is_ok_and(|flags| flags.contains(OFlags::NONBLOCK));
        let socket = foreign(self.ids.next(), it, Kind::Stream, is_nonblocking);
        learn_times(number, &socket);
        socket.has_kernel.store(true, Ordering::Release);
        socket.set_inode(names.inode);
        self.install(number, &socket);
    }

    /// Makes a way to the steward at the other end of the pair. `None`: there is none for a process
    /// that has confined itself, and none if the pair is full.
    fn join(&self, number: Descriptor, names: &Names) -> Option<(Arc<Control>, u64)> {
        let is_stream = sockopt::socket_type(number.as_fd()) == Ok(SocketType::STREAM);
        if !is_stream || self.lending.keeps_out.load(Ordering::Relaxed) {
            return None;
        }
        let control = self.lending.come_by(number)?;
        let token = self.ids.next_token();
        let message = Message {
            kind: MessageKind::Join,
            id: names.id,
            token,
            amount: 0,
        };
        if control.say(message, None).is_err() {
            let mut all = self.lending.controls.lock();
            all.retain(|other| !Arc::ptr_eq(other, &control));
            return None;
        }
        Some((control, token))
    }

    fn receive_again(&self, number: Descriptor, socket: &Arc<Description>) {
        self.install(number, socket);
        if !socket.has_kernel()
            && let Ok(anchor) = self.numbers.anchor()
        {
            let _ = replace(number, anchor);
        }
    }
}

impl Process {
    /// Learns the options and time limits of a socket that another process has made.
    pub(crate) fn learn_from_kernel(&self, socket: &Description, number: Descriptor) {
        learn_times(number, socket);
        // A confined process (seccomp) may not make a socket, and one without a free descriptor
        // cannot: the options are the usual ones.
        if self.lending.keeps_out.load(Ordering::Relaxed) {
            return;
        }
        let Ok(fresh) = self.kernel_twin(socket, SocketFlags::empty()) else {
            return;
        };
        let kind = (socket.family, socket.kind);
        let mut options = options_of(&*self.kernel, number.number(), &fresh, kind);
        drop(fresh);
        self.numbers.keep_spare();
        // A program without the library leaves no word beside it.
        if socket.kind == Kind::Dgram
            && let Some(code) = program_filter_at(&*self.kernel, number.number())
            && let Ok(code) = filter_of(code, true)
        {
            options.set(ATTACH.0, ATTACH.1, &code);
        }
        socket.cold.lock().options = options;
        self.network.learn_link(&*self.kernel, socket, number);
    }
}

impl Lending {
    /// Sends the steward a control socket by the end of the pair under `number`. A child that is
    /// forked meanwhile would keep both ends of it.
    fn come_by(&self, number: Descriptor) -> Option<Arc<Control>> {
        let _unlisted = self.post.unlisted.lock();
        let control = Arc::new(Control::new(join(number).ok()?));
        self.controls.lock().push(Arc::clone(&control));
        Some(control)
    }
}

/// Sets SO_RCVTIMEO and SO_SNDTIMEO to those of the kernel's socket under `number`.
pub(super) fn learn_times(number: Descriptor, socket: &Description) {
    for (which, limit) in [
        (Timeout::Recv, &socket.recv_timeout_ns),
        (Timeout::Send, &socket.send_timeout_ns),
    ] {
        if let Ok(Some(time)) = sockopt::socket_timeout(number.as_fd(), which) {
            limit.store(time.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

pub(crate) fn is_bound(socket: &Description) -> bool {
    let bound = socket.cold.lock().bound;
    bound.is_some_and(|bound| !bound.is_port_given_back)
}

/// Whether a descriptor that has come from elsewhere means something to [`Process::receive`].
#[must_use]
pub fn is_passed(fd: i32) -> bool {
    Descriptor::new(fd).is_some_and(|number| {
        abstract_name::read(number).is_some() || kind_letter(number).is_some()
    })
}

/// Returns the letter by which [`Process::inherit`] names a socket of the kernel's that the stack
/// has a part in: such are bound freely.
fn kind_letter(number: Descriptor) -> Option<char> {
    if !sockopt::ip_freebind(number.as_fd()).unwrap_or(false) {
        return None;
    }
    let is_connected = rustix::net::getpeername(number.as_fd()).is_ok();
    match sockopt::socket_type(number.as_fd()).ok()? {
        SocketType::DGRAM => Some('u'),
        SocketType::STREAM if sockopt::socket_acceptconn(number.as_fd()).ok()? => Some('l'),
        SocketType::STREAM if !is_connected => Some('b'),
        _ => None,
    }
}

impl Table {
    /// The numbers of such sockets that a program would have.
    fn inherited(&self, is_meant: fn(&Description) -> bool) -> Vec<i32> {
        let is_inherited = |number: i32, entry: &Entry| {
            let Entry::Socket(socket) = entry else {
                return false;
            };
            is_meant(socket)
                && Descriptor::new(number)
                    .and_then(|number| rustix::io::fcntl_getfd(number.as_fd()).ok())
                    .is_some_and(|flags| !flags.contains(rustix::io::FdFlags::CLOEXEC))
        };
        let all = self.all().into_iter();
        all.filter(|(number, entry)| is_inherited(*number, entry))
            .map(|(number, _)| number)
            .collect()
    }

    /// Returns the connection that has come by the end of that pair before.
    pub(crate) fn find_pair(&self, pair: &PairName) -> Option<Arc<Description>> {
        self.all().into_iter().find_map(|(_, entry)| {
            let Entry::Socket(socket) = entry else {
                return None;
            };
            let is_it =
                matches!(socket.decided.get(), Some(Decided::Foreign(it)) if it.is_pair(pair));
            is_it.then_some(socket)
        })
    }
}
