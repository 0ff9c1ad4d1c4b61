//! The models, and the function that runs them.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use loom::thread;
use slipstack_models::bytering::{ByteRing, RING_LOG2_MIN, RingWord};
use slipstack_models::command_ring::{CommandReader, CommandRing, PAYLOAD_WORDS};
use slipstack_models::event_ring::{EventReader, EventWriter};
use slipstack_models::inbox::{InboxReader, MpscInbox};
use slipstack_models::lock::Lock;
use slipstack_models::region::{PAGE, Region};
use slipstack_models::sleeper::Sleeper;
use slipstack_models::sync::{AtomicU64, Ordering, fence};

// The thread that makes a ring never reads it: loom shows a thread that has yielded nothing older
// than what it has seen, its own first values among it.

/// Schedules with more switches in the middle of a thread's work are left out: their number grows
/// beyond measure, and the defects that the literature knows need two.
const PREEMPTIONS: usize = 2;

/// A model that takes longer ends without a verdict on the rest.
const LONGEST: Duration = Duration::from_secs(60);

const MODELS: &[(&str, fn())] = &[
    ("events-arrive-in-order", events_arrive_in_order),
    (
        "commands-arrive-whole-and-once",
        commands_arrive_whole_and_once,
    ),
    ("frames-arrive-whole-and-once", frames_arrive_whole_and_once),
    ("a-sleeping-owner-is-rung", a_sleeping_owner_is_rung),
    (
        "replaced-rings-are-read-again",
        replaced_rings_are_read_again,
    ),
    ("one-owner-at-a-time", one_owner_at_a_time),
    ("a-sleeping-thread-is-woken", a_sleeping_thread_is_woken),
];

pub fn run() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut count = 0;
    for (name, model) in MODELS {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            let started = std::time::Instant::now();
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(PREEMPTIONS);
            builder.max_branches = 100_000;
            builder.max_duration = Some(LONGEST);
            builder.check(*model);
            println!("{name}: holds ({} ms)", started.elapsed().as_millis());
            count += 1;
        }
    }
    if count == 0 {
        eprintln!("models: none has such a name");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The ring has one free word and two events to come: the writer laps the reader.
fn events_arrive_in_order() {
    const WORDS: u64 = 8;
    let region = Region::new(64 * 3);
    let mut writer = EventWriter::new(&region, 0, WORDS as usize, 64).expect("it fits");
    let mut reader = EventReader::new(&region, 0, WORDS as usize, 64).expect("it fits");
    for event in 1..WORDS {
        writer.push(event).expect("there is room");
    }
    let writing = thread::spawn(move || {
        for event in [WORDS, WORDS + 1] {
            while writer.push(event).is_err() {
                thread::yield_now();
            }
        }
    });
    for expected in 1..=WORDS + 1 {
        assert_eq!(wait_for(|| reader.pop()), expected);
    }
    assert_eq!(reader.pop(), None);
    writing.join().expect("the writer ends");
}

fn commands_arrive_whole_and_once() {
    let region = Region::new(64 * 2);
    let ring = Arc::new(CommandRing::new(&region, 0, 2).expect("it fits"));
    let mut reader = CommandReader::new(&region, 0, 2).expect("it fits");
    let write = |ring: &CommandRing, value| {
        while !ring.push(&[value; PAYLOAD_WORDS]) {
            thread::yield_now();
        }
    };
    let reading = thread::spawn(move || {
        let mut sum = 0;
        for _ in 0..2 {
            let payload = wait_for(|| reader.pop());
            assert!(payload.iter().all(|word| *word == payload[0]));
            sum += payload[0];
        }
        assert_eq!((sum, reader.pop()), (3, None));
    });
    let other = Arc::clone(&ring);
    let writing = thread::spawn(move || write(&other, 1));
    write(&ring, 2);
    writing.join().expect("the writer ends");
    reading.join().expect("the reader ends");
}

fn inbox() -> (MpscInbox, InboxReader) {
    const CELLS: usize = 2;
    let region = Region::new(MpscInbox::bytes(CELLS));
    let inbox = MpscInbox::new(&region, 0, CELLS).expect("it fits");
    (inbox.clone(), InboxReader::new(inbox))
}

fn frames_arrive_whole_and_once() {
    let (inbox, mut reader) = inbox();
    let write = |inbox: &MpscInbox, value| assert!(inbox.push(&[&[value; 16]]));
    let reading = thread::spawn(move || {
        let mut sum = 0;
        let mut out = [0; 64];
        for _ in 0..2 {
            let len = wait_for(|| reader.pop(0, &mut out));
            assert!(out[..len].iter().all(|byte| *byte == out[0]));
            sum += usize::from(out[0]) * len;
        }
        assert_eq!((sum, reader.lost()), (3 * 16, 0));
    });
    let other = inbox.clone();
    let writing = thread::spawn(move || write(&other, 1));
    write(&inbox, 2);
    writing.join().expect("the writer ends");
    reading.join().expect("the reader ends");
}

/// The owner announces its sleep, a writer adds a frame: the second of them sees the first.
fn a_sleeping_owner_is_rung() {
    let (inbox, mut reader) = inbox();
    let bell = Arc::new(AtomicU64::new(0));
    let rung = Arc::clone(&bell);
    let writing = thread::spawn(move || {
        assert!(inbox.push(&[&[7; 8]]));
        if inbox.take_sleeping() {
            rung.store(1, Ordering::Relaxed);
        }
    });
    let sleeps = reader.prepare_sleep();
    writing.join().expect("the writer ends");
    assert!(!sleeps || bell.load(Ordering::Relaxed) == 1);
    assert!(reader.pop(0, &mut [0; 64]).is_some());
}

/// The producer replaces its ring while the reader copies, and reuses the old one: a reader that
/// finds the same word after its copy has copied the bytes of that offset.
fn replaced_rings_are_read_again() {
    const OLD: usize = 0;
    const NEW: usize = PAGE;
    let region = Region::new(2 * PAGE);
    let arena = 0..2 * PAGE;
    let at = |generation, offset| RingWord::new(generation, RING_LOG2_MIN, offset);
    let word = Arc::new(AtomicU64::new(at(0, OLD).0));
    let ring = |word| ByteRing::validate(word, &arena).expect("it lies in the arena");
    ring(at(0, OLD)).write(&region, 0, &[1; 8]);
    let (theirs, published) = (region.clone(), Arc::clone(&word));
    let (old, new) = (ring(at(0, OLD)), ring(at(1, NEW)));
    let writing = thread::spawn(move || {
        old.copy_to(&theirs, &new, 0, 8);
        published.store(at(1, NEW).0, Ordering::Release);
        // The word is out before the block is used for anything else.
        fence(Ordering::Release);
        old.write(&theirs, 0, &[9; 8]);
    });
    let mut out = [0; 8];
    loop {
        let before = RingWord(word.load(Ordering::Acquire));
        ring(before).read(&region, 0, &mut out);
        fence(Ordering::Acquire);
        if word.load(Ordering::Relaxed) == before.0 {
            break;
        }
        thread::yield_now();
    }
    assert_eq!(out, [1; 8]);
    writing.join().expect("the producer ends");
}

/// Two threads take turns at a value that is not atomic as a whole.
fn one_owner_at_a_time() {
    let lock = Arc::new(Lock::new([const { 0u64 }; 1].map(AtomicU64::new)));
    let add = |lock: &Lock<[AtomicU64; 1]>| {
        let value = lock.lock();
        let read = value[0].load(Ordering::Relaxed);
        value[0].store(read + 1, Ordering::Relaxed);
    };
    let other = Arc::clone(&lock);
    let adding = thread::spawn(move || add(&other));
    add(&lock);
    adding.join().expect("the other ends");
    assert_eq!(lock.lock()[0].load(Ordering::Relaxed), 2);
}

/// A thread that missed work published before the wake would sleep for ever, which loom detects.
fn a_sleeping_thread_is_woken() {
    let shared = Arc::new((Sleeper::default(), AtomicU64::new(0)));
    let other = Arc::clone(&shared);
    let sleeping = thread::spawn(move || {
        let (sleeper, word) = &*other;
        let mut seen = 0;
        while seen < 2 {
            sleeper.sleep(|| word.load(Ordering::Acquire) != seen);
            seen = word.load(Ordering::Acquire);
        }
    });
    let (sleeper, word) = &*shared;
    for count in 1..=2 {
        word.store(count, Ordering::Release);
        sleeper.wake();
    }
    sleeping.join().expect("the sleeper does not panic");
}

fn wait_for<T>(mut take: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(taken) = take() {
            return taken;
        }
        thread::yield_now();
    }
}
