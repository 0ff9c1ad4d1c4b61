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
    len_of(&file)?;
    read_upto(file, TEXT_MAX)
}

/// As [`read_bytes`], of a file that has `len` bytes.
///
/// # Errors
/// It has more or fewer.
pub fn read_exactly(file: OwnedFd, len: u64) -> io::Result<Vec<u8>> {
    if len_of(&file)? != len {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // It may grow meanwhile.
    let bytes = read_upto(file, len)?;
    match bytes.len() as u64 == len {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Returns the length of a plain file.
fn len_of(file: &OwnedFd) -> io::Result<u64> {
    let stat = fstat(file)?;
    let is_plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let len = u64::try_from(stat.st_size).ok().filter(|_| is_plain);
    len.ok_or(io::ErrorKind::InvalidData.into())
}

fn read_upto(file: OwnedFd, len_max: u64) -> io::Result<Vec<u8>> {
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    File::from(file).take(len_max).read_to_end(&mut bytes)?;
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

    #[test]
    fn a_file_that_has_not_as_many_bytes_as_it_is_to_have_is_refused() {
        let read = |len| read_exactly(text_file(b"text").unwrap(), len).ok();
        assert_eq!(read(4), Some(b"text".to_vec()));
        assert_eq!((read(3), read(5)), (None, None));
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        assert!(read_exactly(pipe, 0).is_err());
    }
}
