//! Forks, new programs and ends of a process and its descendants, as the kernel's performance
//! events tell them (perf_event_open(2)).

mod sys;

use std::io;
use std::os::fd::BorrowedFd;

use sys::Ring;

/// Rings of one trace, at most: its threads times the processors.
const RINGS_MAX: usize = 1024;

/// Types of records (`enum perf_event_type`), and the bit of one for a new program.
const LOST: u32 = 2;
const NAMED: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const BY_EXEC: u16 = 1 << 13;

/// Something that has happened to a process, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    Forked {
        parent: u32,
        child: u32,
    },
    Executed(u32),
    Ended(u32),
    /// Others were not recorded, because nobody has read them in time.
    Lost,
}

/// The events of one process and of the descendants that it makes from now on.
#[derive(Debug)]
pub struct Trace {
    rings: Vec<Ring>,
}

impl Trace {
    /// Begins to trace a process.
    ///
    /// # Errors
    /// There is no such process (ESRCH), the kernel does not allow it (EACCES, EPERM), or it has
    /// more threads than are traced (EAGAIN).
    pub fn of(process: u32) -> io::Result<Trace> {
        let mut rings = Vec::new();
        let processors = sys::processors();
        for entry in std::fs::read_dir(format!("/proc/{process}/task"))? {
            let name = entry?.file_name();
            let Some(task) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            for processor in 0..processors {
                match Ring::open(task, processor) {
                    Ok(ring) => rings.push(ring),
                    Err(error) if is_absent(&error) => {}
                    Err(error) => return Err(error),
                }
                if rings.len() > RINGS_MAX {
                    return Err(io::Error::from_raw_os_error(libc::EAGAIN));
                }
            }
        }
        match rings.is_empty() {
            true => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            false => Ok(Trace { rings }),
        }
    }

    /// Descriptors that become readable with an event.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(Ring::descriptor)
    }

    /// Takes what has happened, each with its time by which several traces are sorted.
    pub fn take(&self, found: &mut Vec<(u64, Happened)>) {
        for ring in &self.rings {
            ring.take(|record| found.extend(read(record)));
        }
    }
}

/// A processor that is switched off, or a thread that has ended.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ESRCH))
}

/// Reads one record: a header, numbers, and the time at its end.
fn read(record: &[u8]) -> Option<(u64, Happened)> {
    let word = |at: usize| Some(u32::from_ne_bytes(*record.get(at..)?.first_chunk()?));
    let flags = u16::from_ne_bytes(*record.get(4..)?.first_chunk()?);
    let time = u64::from_ne_bytes(*record.last_chunk()?);
    let happened = match word(0)? {
        LOST => Happened::Lost,
        NAMED if flags & BY_EXEC != 0 => Happened::Executed(word(8)?),
        // pid, ppid, tid, ptid. A new thread has its parent's process.
        FORK if word(8)? != word(12)? => Happened::Forked {
            parent: word(12)?,
            child: word(8)?,
        },
        EXIT if word(8)? == word(16)? => Happened::Ended(word(8)?),
        _ => return None,
    };
    Some((time, happened))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_records_are_parsed_and_other_lines_skipped() {
        let record = |kind: u32, flags: u16, words: [u32; 4]| {
            let mut bytes = kind.to_ne_bytes().to_vec();
            bytes.extend(flags.to_ne_bytes());
            bytes.extend(32u16.to_ne_bytes());
            bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
            bytes.extend(77u64.to_ne_bytes());
            read(&bytes)
        };
        let (parent, child) = (5, 6);
        let forked = Some((77, Happened::Forked { parent, child }));
        assert_eq!(record(FORK, 0, [6, 5, 6, 5]), forked);
        assert_eq!(record(FORK, 0, [5, 5, 6, 5]), None, "a thread");
        assert_eq!(
            record(EXIT, 0, [6, 5, 6, 5]),
            Some((77, Happened::Ended(6)))
        );
        let executed = Some((77, Happened::Executed(6)));
        assert_eq!(record(NAMED, BY_EXEC, [6, 6, 0, 0]), executed);
        assert_eq!(
            record(NAMED, 0, [6, 6, 0, 0]),
            None,
            "a thread has named itself"
        );
        assert_eq!(read(&[4, 0, 0]), None);
    }

    #[test]
    fn a_child_that_becomes_another_program_is_seen() {
        let Ok(trace) = Trace::of(std::process::id()) else {
            // The kernel may not allow it (perf_event_paranoid).
            return;
        };
        let status = std::process::Command::new("/bin/true").status();
        assert!(status.is_ok_and(|status| status.success()));
        let mut found = Vec::new();
        trace.take(&mut found);
        found.sort_unstable_by_key(|(time, _)| *time);
        let executed = found.iter().find_map(|(_, it)| match it {
            Happened::Executed(process) => Some(*process),
            _ => None,
        });
        let child = executed.expect("the child's program is recorded");
        let parent = std::process::id();
        let of_child: Vec<Happened> = found.into_iter().map(|(_, it)| it).collect();
        assert!(
            of_child.contains(&Happened::Forked { parent, child }),
            "{of_child:?}"
        );
        assert!(of_child.contains(&Happened::Ended(child)), "{of_child:?}");
    }
}
