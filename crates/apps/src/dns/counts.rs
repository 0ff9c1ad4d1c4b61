//! Figures of a name server: queries by type, responses by code.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Types that are counted by themselves; those above together.
const TYPES: usize = 260;
/// Response codes that are counted by themselves; those above together.
const CODES: usize = 17;

/// One figure: written by one thread.
#[derive(Debug, Default)]
pub struct Figure(AtomicU64);

impl Figure {
    #[inline]
    pub fn add(&self) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before + 1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Figures of one engine or worker.
#[derive(Debug)]
pub struct Counts {
    types: Box<[Figure]>,
    codes: Box<[Figure]>,
    pub udp: Figure,
    pub tcp: Figure,
    pub truncated: Figure,
    pub transfers: Figure,
    pub notifies: Figure,
    /// Responses not sent, and sent truncated, because of the rate limit.
    pub dropped: Figure,
    pub slipped: Figure,
}

impl Default for Counts {
    fn default() -> Counts {
        let figures = |count: usize| (0..count).map(|_| Figure::default()).collect();
        Counts {
            types: figures(TYPES),
            codes: figures(CODES),
            udp: Figure::default(),
            tcp: Figure::default(),
            truncated: Figure::default(),
            transfers: Figure::default(),
            notifies: Figure::default(),
            dropped: Figure::default(),
            slipped: Figure::default(),
        }
    }
}

impl Counts {
    #[inline]
    pub fn note_query(&self, qtype: u16) {
        self.types[usize::from(qtype).min(TYPES - 1)].add();
    }

    /// Counts a response by its header.
    #[inline]
    pub fn note_response(&self, message: &[u8]) {
        if let [_, _, flags, code, ..] = message {
            self.codes[usize::from(code & 15)].add();
            if flags & 2 != 0 {
                self.truncated.add();
            }
        }
    }
}

/// The figures of all engines and workers.
#[derive(Debug, Default)]
pub struct Book {
    all: Mutex<Vec<Arc<Counts>>>,
}

impl Book {
    /// Figures for one more engine or worker.
    pub fn open(&self) -> Arc<Counts> {
        let counts = Arc::new(Counts::default());
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&counts));
        counts
    }

    /// Sums since the start, as one line of JSON.
    pub fn json(&self) -> String {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |figure: &dyn Fn(&Counts) -> u64| all.iter().map(|it| figure(it)).sum::<u64>();
        let mut line = String::from("{");
        for (name, figure) in FIGURES {
            let _ = write!(line, "\"{name}\":{},", sum(&|it| figure(it).get()));
        }
        for (name, list, text) in LISTS {
            let len = all.first().map_or(0, |it| list(it).len());
            let counted = (0..len).map(|at| (text(at), sum(&|it| list(it)[at].get())));
            let counted = counted.filter(|(_, count)| *count > 0);
            let parts: Vec<String> = counted.map(|(key, n)| format!("\"{key}\":{n}")).collect();
            let _ = write!(line, "\"{name}\":{{{}}},", parts.join(","));
        }
        line.pop();
        line.push('}');
        line
    }
}

type Pick<T> = fn(&Counts) -> &T;

/// Name, counters, and the name of each counter.
type List = (&'static str, Pick<[Figure]>, fn(usize) -> String);

const LISTS: [List; 2] = [
    ("types", |it| &it.types, type_name),
    ("rcodes", |it| &it.codes, code_name),
];

const FIGURES: [(&str, Pick<Figure>); 7] = [
    ("udp", |it| &it.udp),
    ("tcp", |it| &it.tcp),
    ("truncated", |it| &it.truncated),
    ("transfers", |it| &it.transfers),
    ("notifies", |it| &it.notifies),
    ("rate-dropped", |it| &it.dropped),
    ("rate-slipped", |it| &it.slipped),
];

fn type_name(number: usize) -> String {
    match number {
        0 => "TYPE0".to_owned(),
        n if n == TYPES - 1 => "other".to_owned(),
        n => domain::base::Rtype::from_int(n as u16).to_string(),
    }
}

fn code_name(number: usize) -> String {
    match number {
        n if n == CODES - 1 => "other".to_owned(),
        n => domain::base::iana::Rcode::checked_from_int(n as u8)
            .map_or_else(|| n.to_string(), |code| code.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_all_engines_are_summed() {
        let book = Book::default();
        let (one, two) = (book.open(), book.open());
        one.note_query(1);
        two.note_query(1);
        two.note_query(40_000);
        one.udp.add();
        one.note_response(&[0, 0, 0x84, 3]);
        two.note_response(&[0, 0, 0x86, 0]);
        let json = book.json();
        assert!(
            json.contains("\"A\":2") && json.contains("\"other\":1"),
            "{json}"
        );
        assert!(
            json.contains("\"NXDOMAIN\":1") && json.contains("\"truncated\":1"),
            "{json}"
        );
        assert!(
            json.starts_with("{\"udp\":1,") && json.ends_with("}}"),
            "{json}"
        );
    }
}
