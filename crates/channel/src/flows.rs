//! The flow directory: an engine's flows, for the keeper to clean up after the engine's death.
//!
//! One line per flow. The engine writes; the keeper reads when the engine has died, and trusts
//! nothing but the bounds.

use core::sync::atomic::{AtomicU64, Ordering};
use std::net::SocketAddr;

use slipstack_mem::{Line, Lines, Region};

use crate::addr::{AddrWords, Ends};
use crate::ids::SockId;
use crate::layout::{FLOWS, FLOWS_AT};

const USED: u64 = 1;
const UDP: u64 = 1 << 1;
/// The connection is on its way to another engine or another socket.
const LEAVING: u64 = 1 << 2;
/// The number of the connection's choice, above the ports of the first word; 0 = none.
const CHOICE_SHIFT: u32 = 48;
/// Lines of the page before the entries: one with the number of entries, those of the choices.
const HEADER_LINES: usize = 64;
const CHOICES_PER_LINE: usize = 4;
const CHOICES: usize = (HEADER_LINES - 1) * CHOICES_PER_LINE;
/// The first of the words that describe an open connection: three of the engine's own, the last of
/// which has room for the socket above its low 40 bits.
const OPENED_AT: usize = 5;
const SOCKET_SHIFT: u32 = 40;
const GENERATION_SHIFT: u32 = 56;
const DESCRIBED: u64 = 1 << 55;
/// Bits of a socket's generation that a description has.
const GENERATION_MASK: u32 = 0xff;

/// The engine's handle.
#[derive(Debug)]
pub struct FlowDirectory {
    lines: Lines,
    free: Vec<u32>,
    untouched: u32,
    /// The choices in the header, in order. They stay: programs choose few.
    choices: Vec<Choice>,
}

/// Choices of a program for a connection's packets, in the engine's own words; zeros = none.
pub type Choice = [u64; 2];

impl FlowDirectory {
    /// Over the directory of a channel's region.
    pub fn new(region: &Region) -> Option<FlowDirectory> {
        Some(FlowDirectory {
            lines: Lines::new(region, FLOWS_AT, HEADER_LINES + FLOWS)?,
            free: Vec::new(),
            untouched: 0,
            choices: Vec::new(),
        })
    }

    /// Returns whether it is the directory of this region.
    pub fn is_of(&self, region: &Region) -> bool {
        self.lines.region().is_same(region)
    }

    /// Enters a TCP flow and gives its place; `None` when the directory is full.
    #[inline]
    pub fn open(&mut self, ends: &Ends) -> Option<u32> {
        self.enter(ends, USED)
    }

    /// Opens the entry of a connected datagram socket.
    pub fn open_datagrams(&mut self, ends: &Ends) -> Option<u32> {
        self.enter(ends, USED | UDP)
    }

    #[inline(always)]
    fn enter(&mut self, &Ends { local, remote }: &Ends, kind: u64) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if (self.untouched as usize) < FLOWS => {
                self.untouched += 1;
                let used = u64::from(self.untouched);
                self.lines.line(0).words[0].store(used, Ordering::Release);
                self.untouched - 1
            }
            None => return None,
        };
        let line = self.lines.line(HEADER_LINES + slot as usize);
        let ports = u64::from(local.port) << 32 | u64::from(remote.port) << 16;
        for (word, value) in
            line.words[1..5]
                .iter()
                .zip([local.ip[0], local.ip[1], remote.ip[0], remote.ip[1]])
        {
            word.store(value, Ordering::Relaxed);
        }
        line.words[OPENED_AT + 2].store(0, Ordering::Relaxed);
        line.words[0].store(ports | kind, Ordering::Release);
        Some(slot)
    }

    /// Records the socket of an open flow, and the state that a stack needs to continue it: of the
    /// last word the low 40 bits. A flow whose choice finds no room is one without a description.
    #[inline]
    pub fn describe(&mut self, slot: u32, sock: SockId, origin: [u64; 3], choice: Choice) {
        let Some(number) = self.number(choice) else {
            let line = self.lines.line(HEADER_LINES + slot as usize);
            return line.words[OPENED_AT + 2].store(0, Ordering::Release);
        };
        let line = self.lines.line(HEADER_LINES + slot as usize);
        let head = line.words[0].load(Ordering::Relaxed);
        if head >> CHOICE_SHIFT != number {
            let head = head & ((1 << CHOICE_SHIFT) - 1) | number << CHOICE_SHIFT;
            line.words[0].store(head, Ordering::Release);
        }
        let socket = u64::from(sock.index) << SOCKET_SHIFT
            | u64::from(sock.generation & GENERATION_MASK) << GENERATION_SHIFT;
        let last = origin[2] & ((1 << SOCKET_SHIFT) - 1) | socket | DESCRIBED;
        line.words[OPENED_AT].store(origin[0], Ordering::Relaxed);
        line.words[OPENED_AT + 1].store(origin[1], Ordering::Relaxed);
        line.words[OPENED_AT + 2].store(last, Ordering::Release);
    }

    /// Returns the number of a choice, which is in the header then; `None` if that is full.
    #[inline]
    fn number(&mut self, choice: Choice) -> Option<u64> {
        match choice {
            [0, 0] => Some(0),
            _ => self.number_of_some(choice),
        }
    }

    #[cold]
    fn number_of_some(&mut self, choice: Choice) -> Option<u64> {
        let known = self.choices.iter().position(|it| *it == choice);
        let at = known.unwrap_or(self.choices.len());
        if at == CHOICES {
            return None;
        }
        if known.is_none() {
            let [first, second] = choice_words(&self.lines, at);
            first.store(choice[0], Ordering::Relaxed);
            second.store(choice[1], Ordering::Relaxed);
            self.choices.push(choice);
        }
        Some(at as u64 + 1)
    }

    /// Marks a flow that is about to have another owner, or to stay after all: the keeper steers
    /// none of its frames here, but takes it if this engine dies before it has been closed.
    pub fn set_leaving(&mut self, slot: u32, is_leaving: bool) {
        let line = self.lines.line(HEADER_LINES + slot as usize);
        let head = line.words[0].load(Ordering::Relaxed) & !LEAVING;
        let bit = if is_leaving { LEAVING } else { 0 };
        line.words[0].store(head | bit, Ordering::Release);
    }

    pub fn close(&mut self, slot: u32) {
        if slot < self.untouched {
            let line = self.lines.line(HEADER_LINES + slot as usize);
            line.words[0].store(0, Ordering::Release);
            self.free.push(slot);
        }
    }
}

/// One flow of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEntry {
    pub is_udp: bool,
    /// See [`FlowDirectory::set_leaving`].
    pub is_leaving: bool,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub opened: Option<Opened>,
}

/// An open connection's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Index of the socket's cell.
    pub(crate) index: u32,
    generation: u32,
    /// As given to [`FlowDirectory::describe`].
    pub origin: [u64; 3],
    pub choice: Choice,
}

impl Opened {
    /// Returns whether the entry belongs to a socket of this generation.
    pub(crate) fn is_of(&self, generation: u32) -> bool {
        generation & GENERATION_MASK == self.generation
    }

    /// Names a socket's cell, and nothing more.
    pub(crate) fn naming(sock: SockId) -> Opened {
        Opened {
            index: sock.index,
            generation: sock.generation & GENERATION_MASK,
            origin: [0; 3],
            choice: [0; 2],
        }
    }

    fn of(words: [u64; 3], choice: Choice) -> Option<Opened> {
        (words[2] & DESCRIBED != 0).then_some(Opened {
            index: (words[2] >> SOCKET_SHIFT & 0x7fff) as u32,
            generation: (words[2] >> GENERATION_SHIFT) as u32,
            origin: [words[0], words[1], words[2] & ((1 << SOCKET_SHIFT) - 1)],
            choice,
        })
    }
}

/// Returns the flows in the directory of a channel's region. The number is bounded, and any content
/// is possible.
pub fn flows(region: &Region) -> Vec<FlowEntry> {
    let Some(lines) = Lines::new(region, FLOWS_AT, HEADER_LINES + FLOWS) else {
        return Vec::new();
    };
    let used = lines.line(0).words[0].load(Ordering::Acquire);
    let used = usize::try_from(used).unwrap_or(FLOWS).min(FLOWS);
    let entry = |slot: usize| {
        let line = lines.line(HEADER_LINES + slot);
        let head = line.words[0].load(Ordering::Acquire);
        if head & USED == 0 {
            return None;
        }
        let addr = |at: usize, shift: u32| {
            let ip = [
                line.words[at].load(Ordering::Relaxed),
                line.words[at + 1].load(Ordering::Relaxed),
            ];
            let port = (head >> shift) as u16;
            (port != 0).then(|| AddrWords { ip, port }.decode())
        };
        Some(FlowEntry {
            is_udp: head & UDP != 0,
            is_leaving: head & LEAVING != 0,
            local: addr(1, 32)?,
            remote: addr(3, 16)?,
            opened: choice_of(&lines, head).and_then(|choice| opened(line, choice)),
        })
    };
    (0..used).filter_map(entry).collect()
}

fn opened(line: &Line, choice: Choice) -> Option<Opened> {
    let word = |at: usize| line.words[OPENED_AT + at].load(Ordering::Acquire);
    let last = word(2);
    Opened::of([word(0), word(1), last], choice)
}

/// The place in the header of the choice at this index.
fn choice_words(lines: &Lines, at: usize) -> [&AtomicU64; 2] {
    let line = lines.line(1 + at / CHOICES_PER_LINE);
    let word = at % CHOICES_PER_LINE * 2;
    [&line.words[word], &line.words[word + 1]]
}

/// Returns the choice of an entry by its first word; `None` if its number is none.
fn choice_of(lines: &Lines, head: u64) -> Option<Choice> {
    let number = (head >> CHOICE_SHIFT) as usize;
    match number.checked_sub(1) {
        None => Some([0; 2]),
        Some(at) if at < CHOICES => {
            Some(choice_words(lines, at).map(|word| word.load(Ordering::Relaxed)))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::REGION_BYTES;

    #[test]
    fn a_reader_sees_the_flows_that_are_open() {
        let region = Region::create("test", REGION_BYTES).unwrap();
        let mut directory = FlowDirectory::new(&region).unwrap();
        let addr = |port| SocketAddr::from(([10, 0, 0, 5], port));
        let first = directory.open(&Ends::of(addr(80), addr(1))).unwrap();
        let second = directory.open(&Ends::of(addr(80), addr(2))).unwrap();
        directory.close(first);
        let third = directory.open(&Ends::of(addr(80), addr(3))).unwrap();
        assert_eq!(third, first);
        directory.close(second);
        let seen = flows(&region);
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].remote, seen[0].is_udp), (addr(3), false));
        assert_eq!(seen[0].opened, None);
        let sock = SockId {
            index: 0x7ffe,
            generation: 0x1_0003,
        };
        directory.describe(third, sock, [1, 2, 3], [0; 2]);
        let opened = flows(&region)[0].opened.unwrap();
        assert_eq!((opened.index, opened.origin), (0x7ffe, [1, 2, 3]));
        assert!(opened.is_of(3) && !opened.is_of(4));
        directory.set_leaving(third, true);
        assert!(flows(&region)[0].is_leaving);
        directory.set_leaving(third, false);
        assert!(!flows(&region)[0].is_leaving);
        assert_eq!(flows(&region)[0].opened.unwrap().choice, [0; 2]);
        directory.close(third);
        directory.open_datagrams(&Ends::of(addr(53), addr(4)));
        let seen = flows(&region);
        assert_eq!((seen[0].remote, seen[0].is_udp), (addr(4), true));
    }

    #[test]
    fn a_flow_has_the_choice_of_its_last_description() {
        let region = Region::create("test", REGION_BYTES).unwrap();
        let mut directory = FlowDirectory::new(&region).unwrap();
        let addr = |port| SocketAddr::from(([10, 0, 0, 5], port));
        let sock = SockId {
            index: 3,
            generation: 1,
        };
        let ends = |port| Ends::of(addr(65_535), addr(port));
        let (one, two) = (directory.open(&ends(1)), directory.open(&ends(2)));
        let (one, two) = (one.unwrap(), two.unwrap());
        let choice = |at: usize| flows(&region)[at].opened.map(|it| it.choice);
        directory.describe(one, sock, [1; 3], [7, 8]);
        directory.describe(two, sock, [1; 3], [0; 2]);
        assert_eq!((choice(0), choice(1)), (Some([7, 8]), Some([0; 2])));
        directory.set_leaving(one, true);
        assert_eq!(
            (flows(&region)[0].local, choice(0)),
            (addr(65_535), Some([7, 8]))
        );
        for number in 1..CHOICES as u64 {
            directory.describe(two, sock, [1; 3], [0, number]);
            assert_eq!(choice(1), Some([0, number]));
        }
        // The header is full: such a flow is not described, a known choice is found.
        directory.describe(two, sock, [1; 3], [9, 9]);
        assert_eq!(choice(1), None);
        directory.describe(two, sock, [1; 3], [7, 8]);
        assert_eq!(choice(1), Some([7, 8]));
        directory.describe(two, sock, [1; 3], [0; 2]);
        assert_eq!((choice(0), choice(1)), (Some([7, 8]), Some([0; 2])));
    }

    #[test]
    fn a_directory_of_random_words_is_read_without_harm() {
        let region = Region::create("test", REGION_BYTES).unwrap();
        let mut seed = 9u64;
        for word in 0..4096 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let at = FLOWS_AT + word * 8;
            region.u64(at).unwrap().store(seed, Ordering::Relaxed);
        }
        assert!(flows(&region).len() <= FLOWS);
    }
}
