//! A socket's cell: four cache lines, split by writer.
//!
//! The engine writes line 0 on the data path and line 1 rarely; the program writes line 2; line 3
//! holds the flags that both change.

use core::sync::atomic::{AtomicU64, Ordering};
use std::net::SocketAddr;

use slipstack_mem::{Line, RingWord};

use crate::addr::{AddrWords, Ends};
use crate::layout::CELL_LINES;
use crate::loan::Loan;
use crate::state::StateWord;
use crate::urgent::UrgentWord;

/// Engine, data path.
const STATE: usize = 0;
const RX_RING: usize = 1;
const RX_HEAD: usize = 2;
const TX_TAIL: usize = 3;
const TX_RING_SEEN: usize = 4;
const SNDBUF: usize = 5;
const NOTIFY_AT: usize = 6;
const URGENT: usize = 7;
/// Engine, rarely: local address in words 0–1, remote in 2–3, ports and the receive buffer's size
/// in 4, a former urgent byte in 5, the ring of returned datagrams in 6–7.
const LOCAL: usize = 0;
const REMOTE: usize = 2;
const PORTS: usize = 4;
const URGENT_SKIPPED: usize = 5;
const RETURNED_RING: usize = 6;
const RETURNED_HEAD: usize = 7;
/// Program.
const TX_RING: usize = 0;
const TX_HEAD: usize = 1;
const RX_TAIL: usize = 2;
const TX_MARK: usize = 3;
const ACCEPT_TAKEN: usize = 4;
const RETURNED_TAIL: usize = 5;
const RX_KEPT: usize = 6;
const RX_READ: usize = 7;
/// Flags.
const EVENT_PENDING: usize = 0;
const TX_PENDING: usize = 1;
const RX_PENDING: usize = 2;
const TX_WANTED: usize = 3;
/// The engine's: position up to which bytes have been sent, if the program asks for it.
const TX_SENT: usize = 4;
/// Ownership of an accepted connection: its generation while it is offered, with [`TAKEN`] when the
/// program has it.
const CLAIM: usize = 5;
/// The program's: which other processes may use the connection, and how far their bytes have been
/// moved.
const LOAN: usize = 6;
const LOAN_COUNTS: usize = 7;

const TAKEN: u64 = 1 << 63;
const WITHDRAWN: u64 = 1 << 62;

/// Properties of the head of a send ring: whether the program will send more at once, and where the
/// last extent ends that it has announced (0 = none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TxMark(u64);

impl TxMark {
    #[inline]
    pub(crate) fn new(more: bool, extents_end: u64) -> TxMark {
        TxMark(u64::from(more) | extents_end << 1)
    }

    #[inline]
    pub(crate) fn is_more(self) -> bool {
        self.0 & 1 != 0
    }

    #[inline]
    pub(crate) fn extents_end(self) -> u64 {
        self.0 >> 1
    }
}

/// The sizes of a socket's buffers, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub send: u32,
    pub receive: u32,
}

/// A view of one cell. Both sides use it; each writes only its own words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell<'a> {
    lines: &'a [Line; CELL_LINES],
}

impl<'a> Cell<'a> {
    #[inline]
    pub(crate) fn new(lines: &'a [Line; CELL_LINES]) -> Cell<'a> {
        Cell { lines }
    }

    #[inline]
    fn word(&self, line: usize, word: usize) -> &'a AtomicU64 {
        &self.lines[line].words[word]
    }

    // The engine's words.

    #[inline]
    pub(crate) fn state(&self) -> StateWord {
        StateWord::decode(self.word(0, STATE).load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn set_state(&self, state: StateWord) {
        self.word(0, STATE).store(state.encode(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn rx_ring(&self) -> RingWord {
        RingWord(self.word(0, RX_RING).load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn set_rx_ring(&self, ring: RingWord) {
        self.word(0, RX_RING).store(ring.0, Ordering::Release);
        // Bytes written to a reused block from here on must not become visible before the word
        // that says that the block has moved.
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn rx_head(&self) -> u64 {
        self.word(0, RX_HEAD).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_rx_head(&self, head: u64) {
        self.word(0, RX_HEAD).store(head, Ordering::Release);
    }

    #[inline]
    pub(crate) fn tx_tail(&self) -> u64 {
        self.word(0, TX_TAIL).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_tx_tail(&self, tail: u64) {
        self.word(0, TX_TAIL).store(tail, Ordering::Release);
    }

    #[inline]
    pub(crate) fn tx_ring_seen(&self) -> u32 {
        self.word(0, TX_RING_SEEN).load(Ordering::Acquire) as u32
    }

    #[inline]
    pub(crate) fn set_tx_ring_seen(&self, generation: u32) {
        self.word(0, TX_RING_SEEN)
            .store(u64::from(generation), Ordering::Release);
    }

    #[inline]
    pub(crate) fn sndbuf(&self) -> u64 {
        self.word(0, SNDBUF).load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_sndbuf(&self, bytes: u64) {
        self.word(0, SNDBUF).store(bytes, Ordering::Relaxed);
    }

    /// Size of the receive buffer.
    pub(crate) fn rcvbuf(&self) -> u32 {
        (self.word(1, PORTS).load(Ordering::Relaxed) >> 32) as u32
    }

    pub(crate) fn set_rcvbuf(&self, bytes: u32) {
        let word = self.word(1, PORTS);
        let ports = word.load(Ordering::Relaxed) & 0xffff_ffff;
        word.store(u64::from(bytes) << 32 | ports, Ordering::Release);
    }

    #[inline]
    pub(crate) fn notify_at(&self) -> u64 {
        self.word(0, NOTIFY_AT).load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_notify_at(&self, offset: u64) {
        self.word(0, NOTIFY_AT).store(offset, Ordering::Relaxed);
    }

    /// Must be called before the head that makes the bytes readable.
    #[inline]
    pub(crate) fn urgent(&self) -> UrgentWord {
        UrgentWord(self.word(0, URGENT).load(Ordering::Acquire))
    }

    pub(crate) fn set_urgent(&self, word: UrgentWord) {
        self.word(0, URGENT).store(word.0, Ordering::Release);
    }

    /// The offset of an urgent byte at which the program stood when a later one was announced, plus
    /// one: it is not read any more.
    pub(crate) fn urgent_skipped(&self) -> u64 {
        self.word(1, URGENT_SKIPPED).load(Ordering::Acquire)
    }

    pub(crate) fn set_urgent_skipped(&self, next: u64) {
        self.word(1, URGENT_SKIPPED).store(next, Ordering::Release);
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.addr(LOCAL, 16)
    }

    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.addr(REMOTE, 0)
    }

    fn addr(&self, at: usize, shift: u32) -> Option<SocketAddr> {
        let ip = [
            self.word(1, at).load(Ordering::Relaxed),
            self.word(1, at + 1).load(Ordering::Relaxed),
        ];
        let port = (self.word(1, PORTS).load(Ordering::Relaxed) >> shift) as u16;
        let words = AddrWords { ip, port };
        (words != AddrWords::ABSENT).then(|| words.decode())
    }

    /// Sets both addresses. Must be called before the state word that announces them.
    pub(crate) fn set_addrs(&self, local: Option<SocketAddr>, remote: Option<SocketAddr>) {
        let words = |addr: Option<SocketAddr>| addr.map_or(AddrWords::ABSENT, AddrWords::encode);
        let (local, remote) = (words(local), words(remote));
        self.put_ends(&Ends { local, remote }, self.rcvbuf());
    }

    #[inline]
    fn put_ends(&self, &Ends { local, remote }: &Ends, rcvbuf: u32) {
        for (at, addr) in [(LOCAL, local), (REMOTE, remote)] {
            self.word(1, at).store(addr.ip[0], Ordering::Relaxed);
            self.word(1, at + 1).store(addr.ip[1], Ordering::Relaxed);
        }
        let ports = u64::from(local.port) << 16 | u64::from(remote.port);
        self.word(1, PORTS)
            .store(u64::from(rcvbuf) << 32 | ports, Ordering::Release);
    }

    pub(crate) fn returned_ring(&self) -> RingWord {
        RingWord(self.word(1, RETURNED_RING).load(Ordering::Acquire))
    }

    pub(crate) fn set_returned_ring(&self, ring: RingWord) {
        self.word(1, RETURNED_RING).store(ring.0, Ordering::Release);
    }

    pub(crate) fn returned_head(&self) -> u64 {
        self.word(1, RETURNED_HEAD).load(Ordering::Acquire)
    }

    pub(crate) fn set_returned_head(&self, head: u64) {
        self.word(1, RETURNED_HEAD).store(head, Ordering::Release);
    }

    // The program's words.

    pub(crate) fn returned_tail(&self) -> u64 {
        self.word(2, RETURNED_TAIL).load(Ordering::Acquire)
    }

    pub(crate) fn set_returned_tail(&self, tail: u64) {
        self.word(2, RETURNED_TAIL).store(tail, Ordering::Release);
    }

    #[inline]
    pub(crate) fn tx_ring(&self) -> RingWord {
        RingWord(self.word(2, TX_RING).load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn set_tx_ring(&self, ring: RingWord) {
        self.word(2, TX_RING).store(ring.0, Ordering::Release);
    }

    #[inline]
    pub(crate) fn tx_head(&self) -> u64 {
        self.word(2, TX_HEAD).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_tx_head(&self, head: u64) {
        self.word(2, TX_HEAD).store(head, Ordering::Release);
    }

    #[inline]
    pub(crate) fn rx_tail(&self) -> u64 {
        self.word(2, RX_TAIL).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_rx_tail(&self, tail: u64) {
        self.word(2, RX_TAIL).store(tail, Ordering::Release);
    }

    /// Takes what lies before `upto` of a ring from which program and engine take datagrams;
    /// `false`: the other end has taken something meanwhile.
    #[inline]
    pub(crate) fn claim_rx(&self, tail: u64, upto: u64) -> bool {
        let word = self.word(2, RX_TAIL);
        word.compare_exchange(tail, upto, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns whether the program keeps bytes in place: a ring that is replaced then stays.
    pub(crate) fn rx_kept(&self) -> bool {
        self.word(2, RX_KEPT).load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_rx_kept(&self, is_kept: bool) {
        self.word(2, RX_KEPT)
            .store(u64::from(is_kept), Ordering::Release);
    }

    /// Offset up to which the program has read, where it keeps bytes; 0 otherwise.
    #[inline]
    pub(crate) fn rx_read(&self) -> u64 {
        self.word(2, RX_READ).load(Ordering::Relaxed)
    }

    pub(crate) fn set_rx_read(&self, upto: u64) {
        self.word(2, RX_READ).store(upto, Ordering::Relaxed);
    }

    /// Read after the head that it belongs to.
    #[inline]
    pub(crate) fn tx_mark(&self) -> TxMark {
        TxMark(self.word(2, TX_MARK).load(Ordering::Relaxed))
    }

    /// Before the head that it belongs to.
    #[inline]
    pub(crate) fn set_tx_mark(&self, mark: TxMark) {
        self.word(2, TX_MARK).store(mark.0, Ordering::Relaxed);
    }

    pub(crate) fn loan(&self) -> Loan {
        let word = self.word(3, LOAN).load(Ordering::Acquire);
        let counts = self.word(3, LOAN_COUNTS).load(Ordering::Relaxed);
        Loan { word, counts }
    }

    pub(crate) fn set_loan(&self, loan: Loan) {
        let counts = self.word(3, LOAN_COUNTS);
        if counts.load(Ordering::Relaxed) != loan.counts {
            // The process may be killed between the two.
            let unsure = loan.unsure();
            self.word(3, LOAN).store(unsure.word, Ordering::Release);
            counts.store(loan.counts, Ordering::Release);
        }
        self.word(3, LOAN).store(loan.word, Ordering::Release);
    }

    pub(crate) fn accept_taken(&self) -> u64 {
        self.word(2, ACCEPT_TAKEN).load(Ordering::Acquire)
    }

    pub(crate) fn add_accept_taken(&self) {
        self.word(2, ACCEPT_TAKEN).fetch_add(1, Ordering::AcqRel);
    }

    // Flags: set by one side, taken by the other, with full ordering against the words they
    // announce.

    /// Sets the flag; `true` when it was not set, that is: the caller has to send the message.
    #[inline]
    fn raise(&self, flag: usize) -> bool {
        self.word(3, flag).swap(1, Ordering::SeqCst) == 0
    }

    #[inline]
    fn lower(&self, flag: usize) -> bool {
        self.word(3, flag).swap(0, Ordering::SeqCst) != 0
    }

    #[inline]
    pub(crate) fn raise_event(&self) -> bool {
        self.raise(EVENT_PENDING)
    }

    #[inline]
    pub(crate) fn lower_event(&self) {
        self.lower(EVENT_PENDING);
    }

    #[inline]
    pub(crate) fn raise_tx(&self) -> bool {
        self.raise(TX_PENDING)
    }

    #[inline]
    pub(crate) fn lower_tx(&self) {
        self.lower(TX_PENDING);
    }

    #[inline]
    pub(crate) fn raise_rx(&self) -> bool {
        self.raise(RX_PENDING)
    }

    #[inline]
    pub(crate) fn lower_rx(&self) {
        self.lower(RX_PENDING);
    }

    /// The program waits for room in the send ring.
    #[inline]
    pub(crate) fn want_tx(&self) {
        self.word(3, TX_WANTED).store(1, Ordering::SeqCst);
    }

    /// The program waits until less than `low_water` bytes have not left. Returns whether it did
    /// not before.
    pub(crate) fn want_sent(&self, low_water: u32) -> bool {
        let word = u64::from(low_water) << 1 | 1;
        self.word(3, TX_WANTED).swap(word, Ordering::SeqCst) != word
    }

    /// Returns the value last set by [`Cell::want_sent`]; 0 = the program waits for room alone.
    pub(crate) fn low_water(&self) -> u64 {
        self.word(3, TX_WANTED).load(Ordering::SeqCst) >> 1
    }

    pub(crate) fn tx_sent(&self) -> u64 {
        self.word(3, TX_SENT).load(Ordering::Acquire)
    }

    pub(crate) fn set_tx_sent(&self, upto: u64) {
        self.word(3, TX_SENT).store(upto, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_tx_wanted(&self) -> bool {
        self.word(3, TX_WANTED).load(Ordering::SeqCst) != 0
    }

    #[inline]
    pub(crate) fn clear_tx_wanted(&self) {
        self.word(3, TX_WANTED).store(0, Ordering::Relaxed);
    }

    /// Returns whether the program has taken the accepted connection of this generation.
    pub(crate) fn is_taken(&self, generation: u32) -> bool {
        self.word(3, CLAIM).load(Ordering::Acquire) == u64::from(generation) | TAKEN
    }

    /// Returns whether the program has not taken the accepted connection of this generation: it is
    /// offered, or the engine has taken it back and not yet passed it on.
    pub(crate) fn is_unaccepted(&self, generation: u32) -> bool {
        self.word(3, CLAIM).load(Ordering::Acquire) & !WITHDRAWN == u64::from(generation)
    }

    /// The program takes an offered connection; `false`: it is not there any more.
    pub(crate) fn take(&self, generation: u32) -> bool {
        self.claim(generation, TAKEN)
    }

    /// The engine takes an offered connection back; `false`: the program has it.
    pub(crate) fn withdraw(&self, generation: u32) -> bool {
        self.claim(generation, WITHDRAWN)
    }

    fn claim(&self, generation: u32, mark: u64) -> bool {
        let offered = u64::from(generation);
        self.word(3, CLAIM)
            .compare_exchange(offered, offered | mark, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Begins a use for a connection that the program is about to be told of.
    #[inline]
    pub(crate) fn begin_accepted(&self, state: StateWord, limits: Limits, ends: &Ends) {
        self.reset_engine();
        self.set_sndbuf(u64::from(limits.send));
        self.put_ends(ends, limits.receive);
        self.reset_program();
        // The event that announces it.
        self.word(3, EVENT_PENDING).store(1, Ordering::Relaxed);
        self.word(3, CLAIM)
            .store(u64::from(state.generation), Ordering::Relaxed);
        self.set_state(state);
    }

    /// Empties the program's line and the flags, before a new use.
    #[inline]
    pub(crate) fn reset_program(&self) {
        for word in &self.lines[2].words {
            word.store(0, Ordering::Relaxed);
        }
        for word in &self.lines[3].words {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Empties the engine's lines but for the state word, before a new use.
    pub(crate) fn reset_engine(&self) {
        for word in &self.lines[0].words[1..] {
            word.store(0, Ordering::Relaxed);
        }
        for word in &self.lines[1].words {
            word.store(0, Ordering::Relaxed);
        }
    }
}
