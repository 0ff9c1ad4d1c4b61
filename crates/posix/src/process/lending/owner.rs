//! The lending process: its requests to its steward, and the calls it makes for it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::net::Shutdown;
use slipstack_channel::Loan;
use slipstack_mem::thread::spawn_quiet;
use slipstack_mem::{Descriptor, Lock, raised_copy};

use crate::attachment::Attachment;
use crate::kernel::Kernel;
use crate::lending::giving::stream_of;
use crate::lending::lender::Lender;
use crate::lending::post::Charge;
use crate::lending::steward::Steward;
use crate::lending::users_end::UsersEnd;
use crate::process::Process;
use crate::process::ids::Ids;
use crate::process::place::share_datagrams;
use crate::process::table::Entry;
use crate::ready::Sleepers;
use crate::socket::Stream;
use crate::socket::borrowed::Names;
use crate::socket::borrowed::child_message::receive_joining;
use crate::socket::borrowed::requests::{Reply, Request};
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::options::set_on_stream;

impl Process {
    /// Hands something over to the steward. Its descriptor is in the list already.
    pub(super) fn charge(&'static self, charge: Charge) {
        debug_assert!(self.lending.is_stewards(charge.number()));
        let post = &self.lending.post;
        let mut inner = post.inner.lock();
        charge.note_source(&mut inner.sources);
        if inner.thread.is_some() || post.is_ending.load(Ordering::Relaxed) {
            post.hand_over(&mut inner, charge);
            return;
        }
        inner.charges.push(charge);
        inner.thread = spawn_quiet("slipstack-lend", move || {
            Steward::begin(self, &self.lending.post)
        })
        .ok();
        if inner.thread.is_some() {
            return;
        }
        // The program's waits do a steward's work then.
        drop(inner);
        if !post.stand_in(|| Some(Box::new(Steward::new(self, post).ok()?))) {
            post.take_charges()
                .into_iter()
                .for_each(|it| it.refuse(self));
        }
    }

    /// Keeps the kernel's part of a datagram socket whose last number is about to be closed, if
    /// other processes may use the socket.
    pub(crate) fn keep_lent_part(&self, entry: &Entry) {
        if let Entry::Socket(socket) = entry
            && socket.kind == Kind::Dgram
            && socket.lent.is_lent()
            && socket.has_kernel()
            && socket.cold.lock().numbers.len() == 1
        {
            self.steward_number(socket);
        }
    }

    /// Whether this process has a connection of another one: it is the session of a server, which
    /// starts no workers.
    #[must_use]
    pub fn is_session(&self) -> bool {
        self.table.has_foreign()
    }
}

impl Lender for Process {
    fn next_id(&self) -> u64 {
        self.ids.next()
    }

    fn now_ns(&self) -> u64 {
        self.kernel.now_ns()
    }

    fn thread(&self) -> usize {
        self.kernel.thread()
    }

    fn sleepers(&self) -> &Sleepers {
        &self.engines.station.sleepers
    }

    fn living_attachment(&self) -> Option<Arc<Attachment>> {
        Process::living_attachment(self)
    }

    fn turn(&self, attachment: &Attachment) {
        attachment.turn(self.kernel.now_ns());
    }

    fn note(&self, number: i32) {
        self.lending.note(number);
    }

    fn forget(&self, number: i32) {
        self.lending.forget(number);
    }

    fn receive_joining(
        &self,
        end: &OwnedFd,
        room: &mut [u8],
    ) -> rustix::io::Result<(usize, Option<OwnedFd>)> {
        self.lending.receive_listed(|| receive_joining(end, room))
    }

    fn close_noted(&self, end: OwnedFd) {
        self.lending.close_listed(end);
    }

    fn close_pair(&self, ours: OwnedFd, resets: Option<UsersEnd>) {
        let (Some(end), Some(&this)) = (resets, self.this.get()) else {
            self.lending.close_listed(ours);
            return;
        };
        let post = &this.lending.post;
        // It is closed by whoever takes it out.
        let pair = Arc::new(Lock::new(Some(ours)));
        let threads = Arc::clone(&pair);
        post.resets.fetch_add(1, Ordering::SeqCst);
        // The program may have thousands of files to look through: not in the steward's thread,
        // which may drive an engine.
        let reset = move || {
            if let Some(ours) = threads.lock().take() {
                end.prepare_reset(&ours);
                this.lending.close_listed(ours);
            }
            post.resets.fetch_sub(1, Ordering::SeqCst);
        };
        if spawn_quiet("slipstack-reset", reset).is_err() {
            if let Some(ours) = pair.lock().take() {
                let _ = rustix::net::shutdown(&ours, Shutdown::Both);
                self.lending.close_listed(ours);
            }
            post.resets.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn note_pump_ended(&self) {
        self.lending.post.note_pump_ended();
    }

    fn steward_number(&self, socket: &Arc<Description>) -> Option<i32> {
        // A datagram socket's kernel part is read by this number too.
        let part = socket
            .kernel_number()
            .filter(|_| socket.kind == Kind::Dgram);
        let number = {
            // A child that another thread forks would keep the copy.
            let _unlisted = self.lending.post.unlisted.lock();
            let fd = match part {
                Some(number) => raised_copy(number.as_fd()).ok()?,
                None => raised_copy(self.numbers.anchor().ok()?.as_fd()).ok()?,
            };
            let number = Descriptor::keep(fd);
            self.lending.note(number.number());
            number
        };
        self.install(number, socket);
        Some(number.number())
    }

    fn take_back(&self, socket: &Arc<Description>) {
        self.take_share_back(socket, |users| users <= 1);
    }

    fn take_back_unused(&self, socket: &Arc<Description>) {
        socket.lent.begin_use();
        // The loan of a connection that nobody uses is as it was.
        self.take_share_back(socket, |users| users == 1);
    }

    fn share(&self, socket: &Description) {
        if let Some(Decided::Dgram(dgram)) = socket.decided() {
            share_datagrams(&*self.kernel, socket, dgram);
        }
    }

    fn is_left_to_steward(&self, socket: &Description) -> bool {
        let numbers = socket.cold.lock().numbers.clone();
        numbers
            .into_iter()
            .all(|number| self.lending.is_stewards(number))
    }

    fn call(
        &self,
        socket: &Arc<Description>,
        request: &Request<'_>,
        data: &[u8],
        room: &mut [u8],
    ) -> (Reply, usize) {
        self.call_for_borrower(socket, request, data, room)
    }

    fn close_others(&self) {
        let _ = Process::close_others(self, 0, u32::MAX, 0);
    }

    fn close_steward_number(&self, number: i32) {
        // The program may have closed it, and somebody else may have it.
        let Some(entry) = self.table.take(number) else {
            if self.lending.is_stewards(number) {
                Descriptor::new(number).inspect(|it| it.unlist());
            }
            return self.lending.forget(number);
        };
        self.keep_lent_part(&entry);
        self.let_go(number, entry);
        // The number leaves the list last: without being in it, it would count as one of the
        // program's, and the connection as one that a forked child has.
        let _unlisted = self.lending.post.unlisted.lock();
        self.lending.forget(number);
        if let Some(number) = Descriptor::new(number) {
            number.close();
        }
    }
}

impl Process {
    /// `changes`: whether the loan is another one, if so many users are left.
    fn take_share_back(&self, socket: &Arc<Description>, changes: impl FnOnce(u64) -> bool) {
        let is_open = || !socket.cold.lock().numbers.is_empty();
        if !end_loan(socket) {
            if socket.kind == Kind::Stream && changes(socket.lent.users()) {
                self.lending.post.note_taken_back();
            }
            return;
        }
        if socket.kind == Kind::Stream && is_open() {
            return;
        }
        // Pumps have closed theirs: this one has kept the kernel's part.
        let numbers = socket.cold.lock().numbers.clone();
        let mut kept = numbers.into_iter();
        if socket.kind == Kind::Dgram
            && let Some(kept) = kept.find(|number| self.lending.is_stewards(*number))
        {
            self.close_steward_number(kept);
        }
        if socket.may_close() && socket.cold.lock().numbers.is_empty() {
            // SO_LINGER: no thread waits for this end.
            if let Some(Decided::Stream(stream)) = socket.decided() {
                stream.linger.lock().take_if(|seconds| *seconds > 0);
            }
            self.end(socket);
        }
    }
}

/// Counts a process that may use a connection from now on. It cannot go on with it if this one is
/// killed, until the steward says so.
pub(super) fn lend(socket: &Description) {
    // Another thread may take the last loan back.
    let _cold = socket.cold.lock();
    if let Some(Decided::Stream(stream)) = socket.decided() {
        stream.set_loan(Loan::to(0, 0, 0).unsure());
    }
    socket.lent.add();
}

/// Returns true if no other process may use the connection any more.
fn end_loan(socket: &Description) -> bool {
    let _cold = socket.cold.lock();
    let is_last = socket.lent.remove();
    if is_last && let Some(Decided::Stream(stream)) = socket.decided() {
        stream.set_loan(Loan::NONE);
    }
    is_last
}

pub(crate) fn names_of(ids: &Ids, socket: &Description) -> Names {
    let (local, remote) = match socket.decided() {
        Some(Decided::Stream(stream)) => (stream.local(), stream.peer()),
        Some(Decided::Dgram(dgram)) => {
            let bound = socket.cold.lock().bound.map(|bound| bound.addr);
            (dgram.local().or(bound), *dgram.remote.lock())
        }
        _ => (None, None),
    };
    Names {
        id: socket.id,
        inode: ids.inode_of(socket),
        local,
        remote,
        is_shut: stream_of(socket).is_some_and(Stream::has_shut_writing),
    }
}

/// Applies an option that another process has set on a connection of this one.
pub(crate) fn set_for_borrower(
    kernel: &dyn Kernel,
    socket: &Arc<Description>,
    (level, name): (i32, i32),
    value: &[u8],
) {
    let Some(Decided::Stream(stream)) = socket.decided() else {
        return;
    };
    let options = {
        let mut cold = socket.cold.lock();
        cold.options.set(level, name, value);
        cold.options.clone()
    };
    set_on_stream(kernel, (socket, stream), level, name, &options);
    stream.attachment().commands();
}
