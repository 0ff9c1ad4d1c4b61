//! A connection of another process, as the borrower knows it.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::net::Shutdown;
use slipstack_mem::{Descriptor, Lock};

use crate::addr::{Family, Given, parse_peer};
use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::socket::borrowed::child_message::{Message, MessageKind, ReadRequest};
use crate::socket::borrowed::control::Control;
use crate::socket::borrowed::outbox::{Subject, look};
use crate::socket::borrowed::turns::Turns;
use crate::socket::borrowed::{Names, PairName, Reads, Sent};
use crate::socket::description::{Description, Kind};
use crate::socket::{Dgram, Side};

/// Token of a pair to whose steward there is no way; no message has it.
const NO_WAY: u64 = u64::MAX;

/// A connection that lives in another process.
#[derive(Debug)]
pub(crate) struct Borrowed {
    /// The owner's number for it.
    pub(crate) id: u64,
    pub(crate) local: Option<SocketAddr>,
    remote: Lock<Option<SocketAddr>>,
    /// Control socket to the owner's steward; `None` if the owner cannot be reached, or need not be
    /// any more.
    control: Lock<Option<Arc<Control>>>,
    /// Tells the pair from all others, if the connection has come in a message.
    pair: Option<PairName>,
    /// Names the pair that is under the numbers; 0: the connection has not been used.
    token: AtomicU64,
    /// Taken while the pair is made.
    pairing: Lock<()>,
    /// The steward passes on all received data without requests.
    is_streaming: AtomicBool,
    /// The steward passes on nothing until the program has read what it has, so that the connection
    /// can come here.
    is_held: AtomicBool,
    /// A read that may wait has been announced.
    awaits_bytes: AtomicBool,
    /// The program has shut its direction down, or has got the connection's final state.
    has_ended: AtomicBool,
    /// No error will come any more.
    knows_end: AtomicBool,
    /// The sending direction had been shut down before this process used the connection.
    is_shut: AtomicBool,
    /// The pair refuses writes because of that.
    has_refused: AtomicBool,
    /// Set if another program has the end of the pair too.
    is_passed: AtomicBool,
    /// The options are known that were set before this program had the socket.
    has_options: AtomicBool,
    /// A datagram socket of this process's own, which takes its place when it is this process's
    /// alone.
    own: Lock<Option<Box<Dgram>>>,
    /// The kernel part, while the pair is under the socket's numbers.
    pub(crate) kernel_part: Lock<Option<Descriptor>>,
    pub(crate) turns: Turns,
    pub(crate) sent: Sent,
    pub(crate) reads: Reads,
    /// The pair has been found hung up.
    has_hung_up: AtomicBool,
    /// See [`Borrowed::note_cut`].
    was_cut: AtomicBool,
    /// The owner was killed, and the connection cannot come here.
    is_left_to_others: AtomicBool,
    /// Taken while the connection may be coming here, and while a thread begins a call on it.
    pub(crate) coming: Lock<()>,
}

impl Borrowed {
    pub(crate) fn new(
        id: u64,
        names: Option<&Names>,
        control: Option<Arc<Control>>,
        token: Option<u64>,
    ) -> Borrowed {
        Borrowed {
            id,
            local: names.and_then(|names| names.local),
            remote: Lock::new(names.and_then(|names| names.remote)),
            control: Lock::new(control),
            pair: None,
            token: AtomicU64::new(token.unwrap_or(0)),
            pairing: Lock::default(),
            is_streaming: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            awaits_bytes: AtomicBool::new(false),
            has_ended: AtomicBool::new(names.is_some_and(|names| names.is_shut)),
            knows_end: AtomicBool::new(false),
            is_shut: AtomicBool::new(names.is_some_and(|names| names.is_shut)),
            has_refused: AtomicBool::new(false),
            is_passed: AtomicBool::new(false),
            has_options: AtomicBool::new(false),
            own: Lock::default(),
            kernel_part: Lock::default(),
            turns: Turns::default(),
            sent: Sent::default(),
            reads: Reads::default(),
            has_hung_up: AtomicBool::new(false),
            was_cut: AtomicBool::new(false),
            is_left_to_others: AtomicBool::new(false),
            coming: Lock::default(),
        }
    }

    /// The end of a pair to whose steward there is no way.
    pub(crate) fn received(names: &Names) -> Borrowed {
        let it = Borrowed::new(0, Some(names), None, Some(NO_WAY));
        it.note_streaming();
        it
    }

    /// Makes a borrowed connection that another program has sent: the number is an end of `pair`.
    /// `joined`: the control socket to its steward, and the token that it has for the pair.
    pub(crate) fn sent(
        names: &Names,
        pair: PairName,
        joined: Option<(Arc<Control>, u64)>,
    ) -> Borrowed {
        let it = match joined {
            Some((control, token)) => {
                Borrowed::new(names.id, Some(names), Some(control), Some(token))
            }
            None => Borrowed::received(names),
        };
        Borrowed {
            pair: Some(pair),
            ..it
        }
    }

    /// Whether it has come in a message, by an end of that pair.
    pub(crate) fn is_pair(&self, pair: &PairName) -> bool {
        self.pair.as_ref() == Some(pair)
    }

    /// Whether the options are to be asked for that were set before this program had it.
    pub(crate) fn lacks_options(&self) -> bool {
        !self.has_options.load(Ordering::Acquire) && self.control().is_some()
    }

    /// Whether the owner does not answer: it may be stopped.
    pub(crate) fn is_owner_silent(&self) -> bool {
        self.control().is_some_and(|control| control.is_silent())
    }

    pub(crate) fn note_options(&self) {
        self.has_options.store(true, Ordering::Release);
    }

    /// Returns it as a forked child has it, with its parent's options.
    pub(crate) fn knowing_options(self) -> Borrowed {
        self.note_options();
        self
    }

    pub(crate) fn is_left_to_others(&self) -> bool {
        self.is_left_to_others.load(Ordering::Relaxed)
    }

    /// Notes that a call has taken the error which says that the owner has ended with bytes of this
    /// process unread.
    pub(crate) fn note_cut(&self) {
        self.was_cut.store(true, Ordering::Relaxed);
    }

    pub(crate) fn was_cut(&self) -> bool {
        self.was_cut.load(Ordering::Relaxed)
    }

    /// Returns true once.
    pub(crate) fn is_first_hang_up(&self) -> bool {
        !self.has_hung_up.swap(true, Ordering::Relaxed)
    }

    /// Notes that the owner was killed and that the connection cannot come here.
    pub(crate) fn leave_to_others(&self) {
        self.is_left_to_others.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Relaxed)
    }

    /// The sending direction was shut down before this process used the connection.
    pub(crate) fn note_shut(&self) {
        self.is_shut.store(true, Ordering::Relaxed);
    }

    /// A write begins, which fails if the direction had been shut down. The pair is open until
    /// then, as those who get an end of it announce themselves by a byte.
    pub(crate) fn refuse_writes(&self, socket: &Description) {
        if self.is_shut()
            && self.is_taken()
            && socket.kind == Kind::Stream
            && let Some(number) = socket.kernel_number()
            && !self.has_refused.swap(true, Ordering::Relaxed)
        {
            // Once the peer has ended its direction too, the pair looks as after a reset.
            self.has_ended.store(true, Ordering::Relaxed);
            let _ = rustix::net::shutdown(number.as_fd(), Shutdown::Write);
        }
    }

    /// Ends the counts of the bytes that are read from the pair and written to it: others have it
    /// too, or are about to.
    pub(crate) fn stop_counting(&self, kernel: &dyn Kernel, socket: &Description) {
        self.sent.lose();
        self.end_counting(kernel, socket);
    }

    /// Ends the count of the bytes that are read.
    pub(crate) fn end_counting(&self, kernel: &dyn Kernel, socket: &Description) {
        let number = socket.kernel_number().map(Descriptor::number);
        self.reads.end(kernel, number);
    }

    /// Whether it has come in a message.
    pub(crate) fn is_sent(&self) -> bool {
        self.pair.is_some()
    }

    /// Returns the counterpart in a child of this process, which speaks to the steward by
    /// `control`.
    pub(crate) fn for_child(&self, control: Option<Arc<Control>>) -> Borrowed {
        let is_streaming = self.is_streaming.load(Ordering::Relaxed);
        Borrowed {
            id: self.id,
            local: self.local,
            remote: Lock::new(self.remote.try_lock().and_then(|it| *it)),
            control: Lock::new(control),
            pair: self.pair,
            token: AtomicU64::new(self.token().unwrap_or(0)),
            pairing: Lock::default(),
            is_streaming: AtomicBool::new(is_streaming),
            is_held: AtomicBool::new(false),
            awaits_bytes: AtomicBool::new(false),
            has_ended: AtomicBool::new(self.has_ended.load(Ordering::Relaxed)),
            knows_end: AtomicBool::new(self.knows_end()),
            is_shut: AtomicBool::new(self.is_shut()),
            has_refused: AtomicBool::new(false),
            is_passed: AtomicBool::new(false),
            has_options: AtomicBool::new(self.has_options.load(Ordering::Relaxed)),
            own: Lock::default(),
            kernel_part: Lock::new(self.kernel_part.try_lock().and_then(|it| *it)),
            turns: Turns::default(),
            sent: Sent::default(),
            reads: Reads::default(),
            has_hung_up: AtomicBool::new(false),
            was_cut: AtomicBool::new(false),
            is_left_to_others: AtomicBool::new(false),
            coming: Lock::default(),
        }
    }

    pub(crate) fn or_own(self, dgram: Dgram) -> Borrowed {
        *self.own.lock() = Some(Box::new(dgram));
        self
    }

    /// Takes the own socket of this process.
    pub(crate) fn take_own(&self) -> Option<Box<Dgram>> {
        self.own.lock().take()
    }

    /// Returns which parts the own socket has; in a child also if another thread of its parent uses
    /// the place.
    pub(crate) fn own_side(&self) -> Option<Side> {
        Some(self.own.try_lock()?.as_ref()?.side())
    }

    pub(crate) fn has_own(&self) -> bool {
        self.own.lock().is_some()
    }

    /// Keeps the own socket because the borrowed one has not arrived.
    pub(crate) fn keep_own(&self, own: Box<Dgram>) {
        *self.own.lock() = Some(own);
    }

    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        *self.remote.lock()
    }

    /// Records that this process has connected the socket.
    pub(crate) fn note_connected(&self, addr: &[u8], family: Family) {
        *self.remote.lock() = match parse_peer(addr, family) {
            Ok(Given::Addr(addr)) => Some(addr),
            _ => None,
        };
    }

    pub(crate) fn control(&self) -> Option<Arc<Control>> {
        look(&self.control).and_then(|control| control.clone())
    }

    /// Takes the way to the steward of a connection that has come in a message, which nobody else
    /// needs.
    pub(crate) fn take_own_control(&self) -> Option<Arc<Control>> {
        self.control.lock().take_if(|_| self.is_sent())
    }

    pub(crate) fn token(&self) -> Option<u64> {
        Some(self.token.load(Ordering::Acquire)).filter(|token| *token != 0)
    }

    /// Makes the pair by `make`, which names it, unless there is one. Returns whether there is.
    pub(crate) fn pair_with(&self, make: impl FnOnce() -> Result<u64, Errno>) -> Result<(), Errno> {
        let _pairing = self.pairing.lock();
        if !self.is_taken() {
            self.token.store(make()?, Ordering::Release);
        }
        Ok(())
    }

    /// The number by which the steward knows it.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Whether the kernel's part is kept beside the pair; also if that cannot be read.
    pub(crate) fn has_kernel_part(&self) -> bool {
        self.kernel_part.try_lock().is_none_or(|it| it.is_some())
    }

    pub(crate) fn is_streaming(&self) -> bool {
        self.is_streaming.load(Ordering::Relaxed)
    }

    pub(crate) fn note_streaming(&self) {
        self.is_streaming.store(true, Ordering::Relaxed);
    }

    /// Whether a connection has been used for long enough to be requested.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.is_taken() && (self.is_held() || self.turns.is_due(now_ns)) && self.control().is_some()
    }

    /// Returns the time at which it is to be requested, if it is used until then.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.turns.due_ns().filter(|_| self.control().is_some())
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// Keeps the steward from passing on received data without requests, if it does.
    pub(crate) fn hold(&self) {
        if self.is_streaming.swap(false, Ordering::AcqRel) {
            self.is_held.store(true, Ordering::Relaxed);
            self.say(MessageKind::Hold, 0);
        }
    }

    /// The connection stays where it is: the steward goes on as before [`Borrowed::hold`].
    pub(crate) fn resume(&self) {
        if self.is_held.swap(false, Ordering::Relaxed) {
            self.request(0, ReadRequest::All, false);
        }
    }

    /// Requests data from the steward. `waiting`: bytes that have already arrived. A call that does
    /// not block gets what the steward has then.
    pub(crate) fn request(&self, waiting: u64, request: ReadRequest, is_prompt: bool) {
        let (Some(control), Some(token)) = (self.control(), self.token()) else {
            return;
        };
        let (request, is_prompt) = match request {
            // The call ends with the present bytes.
            ReadRequest::Some(_) if waiting > 0 => return,
            ReadRequest::All if waiting > 0 && self.is_held() => return,
            ReadRequest::Whole(count) if waiting >= count => return,
            ReadRequest::Whole(count) => (ReadRequest::Whole(count - waiting), is_prompt),
            ReadRequest::All if self.is_streaming.swap(true, Ordering::AcqRel) => return,
            // A program that polls looks once and then sleeps.
            ReadRequest::All => (request, true),
            ReadRequest::Some(_) | ReadRequest::None => (request, is_prompt),
        };
        let name = (self.id, token);
        match is_prompt {
            true => control.ask(Message::read(MessageKind::ReadNow, name, request)),
            false => {
                let awaits_bytes = request != ReadRequest::None;
                self.awaits_bytes.store(awaits_bytes, Ordering::Relaxed);
                deliver(&control, Message::read(MessageKind::Read, name, request));
            }
        }
    }

    /// A read that was announced ended without bytes (SO_RCVTIMEO, a signal): those that come later
    /// are for the next reader, of whichever process.
    pub(crate) fn withdraw(&self) {
        // A thread that begins to use the connection announces its own read after this.
        let _coming = self.coming.lock();
        let has_asked = self.awaits_bytes.swap(false, Ordering::Relaxed);
        // Another thread may wait for them.
        if has_asked && !self.is_streaming() && !self.turns.has_several_users() {
            self.request(0, ReadRequest::None, false);
        }
    }

    /// Returns whether the program learns now how the connection has ended; once.
    pub(crate) fn hears_end(&self) -> bool {
        self.note_end();
        !self.has_ended.swap(true, Ordering::Relaxed)
    }

    /// No error will come any more.
    pub(crate) fn note_end(&self) {
        self.knows_end.store(true, Ordering::Relaxed);
    }

    pub(crate) fn knows_end(&self) -> bool {
        self.knows_end.load(Ordering::Relaxed)
    }

    /// Returns whether the program has not learnt yet how the connection ends.
    pub(crate) fn awaits_end(&self) -> bool {
        !self.has_ended.load(Ordering::Relaxed)
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.token().is_some()
    }

    /// The end of the pair goes to another program, which `reads` from it at once or when this
    /// process and the owner have closed theirs.
    pub(crate) fn pass(&self, reads: bool) {
        self.is_passed.store(true, Ordering::Relaxed);
        self.say(MessageKind::Pass, u64::from(reads));
    }

    /// The last number was closed.
    pub(crate) fn give_back(&self) {
        match (self.is_taken(), self.is_passed.load(Ordering::Relaxed)) {
            (false, _) => self.say(MessageKind::GiveBack, 0),
            (true, true) => self.say(MessageKind::Part, 0),
            (true, false) => {}
        }
    }

    /// Records that the program shuts a direction down: on the pair this looks the same as the
    /// connection's end.
    pub(crate) fn shut(&self, (read, write): (bool, bool)) {
        self.has_ended.fetch_or(write, Ordering::Relaxed);
        self.say(MessageKind::Shut, u64::from(read) | u64::from(write) << 1);
    }

    pub(crate) fn say(&self, kind: MessageKind, amount: u64) {
        if let Some(control) = self.control() {
            let message = Message {
                kind,
                id: self.id,
                token: self.token().unwrap_or(0),
                amount,
            };
            deliver(&control, message);
        }
    }

    /// Waits while the connection may be coming here, and notes that `thread` uses it.
    pub(crate) fn note_user(&self, thread: usize) {
        let _coming = self.coming.lock();
        self.turns.note_user(thread);
    }
}

/// Sends a message to a steward, which may get it later.
fn deliver(control: &Arc<Control>, message: Message) {
    // The last of several messages of such a kind replaces the others.
    let is_state = matches!(
        message.kind,
        MessageKind::Read | MessageKind::Hold | MessageKind::Leave
    );
    let subject = is_state.then_some(Subject::Kind(message.id, message.kind));
    control.deliver(&[IoSlice::new(&message.bytes())], subject);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_without_a_way_to_its_steward_has_its_pair() {
        let names = Names {
            id: 3,
            inode: 4,
            local: None,
            remote: None,
            is_shut: false,
        };
        let it = Borrowed::received(&names);
        assert!(it.is_taken() && it.control().is_none());
        assert!(it.for_child(None).is_taken());
        assert!(it.pair_with(|| Err(Errno::ENOTCONN)).is_ok());
    }

    #[test]
    fn a_connection_has_no_pair_until_one_is_made() {
        let it = Borrowed::new(3, None, None, None);
        assert_eq!(it.pair_with(|| Err(Errno::ENOTCONN)), Err(Errno::ENOTCONN));
        assert!(!it.is_taken());
        assert!(it.pair_with(|| Ok(9)).is_ok());
        assert_eq!(it.token(), Some(9));
    }
}
