//! Replies that are longer than a message: lines of JSON in an unnamed file whose descriptor is
//! passed with the reply.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, MemfdFlags, fstat, memfd_create};
use serde::Serialize;

/// Most bytes that are read of a file that another process has written.
const TEXT_MAX: u64 = 512 << 20;

/// Adds a value as a line.
pub fn add_line<T: Serialize>(text: &mut Vec<u8>, value: &T) {
    // Serializing a plain value into memory cannot fail.
    if serde_json::to_writer(&mut *text, value).is_ok() {
        text.push(b'\n');
    }
}

/// # Errors
/// The kernel's refusal.
pub fn text_file(text: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create("slipstack-answer", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(text)?;
    Ok(file.into())
}

/// Reads a file that another process has written, from its beginning.
///
/// # Errors
/// It is no plain file, or the kernel's refusal.
pub fn read_text(file: OwnedFd) -> io::Result<String> {
    let bytes = read_bytes(file)?;
    String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Reads the bytes of a file that need not be text.
///
/// # Errors
/// It is no plain file, or the kernel's refusal.
pub fn read_bytes(file: OwnedFd) -> io::Result<Vec<u8>> {
    let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
    if kind != FileType::RegularFile {
        return Err(io::ErrorKind::InvalidData.into());
    }
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    File::from(file).take(TEXT_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a value out of each line. `None`: a line is none.
pub fn read_lines<T: serde::de::DeserializeOwned>(text: &str) -> Option<Vec<T>> {
    let values = text.lines().map(|line| serde_json::from_str(line).ok());
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_round_trips_through_a_file_and_other_descriptors_are_refused() {
        let mut text = Vec::new();
        add_line(&mut text, &("tcp_resets", 7));
        let file = text_file(&text).unwrap();
        assert_eq!(read_text(file).unwrap(), "[\"tcp_resets\",7]\n");
        let (end, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(read_text(end.into()).is_err());
    }
}
