//! The access log (combined format), written by a thread of its own.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

/// Lines that wait to be written; further ones are lost and counted.
const LINES_MAX: usize = 16_384;
/// Bytes that are written at once.
const BATCH: usize = 64 * 1024;

/// An entry for the writer.
#[derive(Debug)]
enum Entry {
    Line(String),
    /// All before it is to be written now.
    Flush(SyncSender<()>),
}

/// The way to the writer.
#[derive(Clone, Debug)]
pub struct Log {
    entries: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

impl Log {
    /// Appends to a file; `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be written, or there is no thread for it.
    pub fn open(path: &Path) -> io::Result<Log> {
        let out: Box<dyn Write + Send> = match path.as_os_str() == "-" {
            true => Box::new(io::stdout()),
            false => Box::new(File::options().create(true).append(true).open(path)?),
        };
        let (entries, waiting) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let batch = Batch {
            out,
            bytes: Vec::with_capacity(BATCH),
            lines: 0,
            lost: Arc::clone(&lost),
        };
        let thread = std::thread::Builder::new().name("access-log".to_owned());
        thread.spawn(move || batch.write_all(&waiting))?;
        Ok(Log { entries, lost })
    }

    /// Hands a line over; it is lost if the writer cannot keep up.
    pub fn put(&self, line: String) {
        if self.entries.try_send(Entry::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all entries are written, for at most `most`.
    pub fn flush(&self, most: Duration) {
        let (done, is_done) = sync_channel(1);
        if self.entries.try_send(Entry::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(most);
        }
    }

    /// Lines that were not written: the writer was behind, or the disk full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Lines on their way to the file.
struct Batch {
    out: Box<dyn Write + Send>,
    bytes: Vec<u8>,
    lines: u64,
    lost: Arc<AtomicU64>,
}

impl Batch {
    /// Writes entries, flushing whenever there is a pause.
    fn write_all(mut self, entries: &Receiver<Entry>) {
        while let Ok(entry) = entries.recv() {
            let mut next = Some(entry);
            while let Some(entry) = next {
                self.take(entry);
                next = entries.try_recv().ok();
            }
            self.write();
        }
    }

    fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Line(line) => {
                self.bytes.extend_from_slice(line.as_bytes());
                self.lines += 1;
                if self.bytes.len() >= BATCH {
                    self.write();
                }
            }
            Entry::Flush(done) => {
                self.write();
                let _ = done.try_send(());
            }
        }
    }

    /// Lines that cannot be written are lost: the next ones are tried again.
    fn write(&mut self) {
        let written = self
            .out
            .write_all(&self.bytes)
            .and_then(|()| self.out.flush());
        if written.is_err() {
            self.lost.fetch_add(self.lines, Ordering::Relaxed);
        }
        self.bytes.clear();
        self.lines = 0;
    }
}

/// Returns a field for a line: quotation marks and control characters are escaped.
pub fn quoted(bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else {
        return "-".to_owned();
    };
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => {
                out.push_str(&format!("\\x{byte:02X}"));
            }
            byte => out.push(char::from(byte)),
        }
    }
    out
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The time as logs have it, in UTC: `25/Nov/2026:08:30:00 +0000`.
pub fn time(now: SystemTime) -> String {
    let seconds = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!(
        "{day:02}/{}/{year}:{:02}:{:02}:{:02} +0000",
        MONTHS[month],
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// Year, month from 0, and day of a day since 1970-01-01.
fn date(days: u64) -> (u64, usize, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut left) = (1970, days);
    loop {
        let len = if is_leap(year) { 366 } else { 365 };
        if left < len {
            break;
        }
        left -= len;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_common_log_format() {
        let at = |seconds| time(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "01/Jan/1970:00:00:00 +0000");
        assert_eq!(at(951_782_400), "29/Feb/2000:00:00:00 +0000");
        assert_eq!(at(1_795_593_599), "25/Nov/2026:07:59:59 +0000");
    }

    #[test]
    fn log_lines_lost_to_a_full_disk_are_counted() {
        let log = Log::open(Path::new("/dev/full")).unwrap();
        for _ in 0..1000 {
            log.put("a line\n".to_owned());
        }
        log.flush(Duration::from_secs(10));
        assert_eq!(log.lost(), 1000);
    }

    #[test]
    fn control_characters_and_quotes_in_fields_are_escaped() {
        assert_eq!(quoted(Some(b"a\"b\nc\\\xff")), "a\\x22b\\x0Ac\\x5C\\xFF");
        assert_eq!(quoted(None), "-");
    }
}
