//! Files below a directory, never outside of it. Everything here may block: it runs on workers.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use percent_encoding::percent_decode_str;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::listing;
use super::status::Status;

const INDEX: &str = "index.html";

/// The directory that is served.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    lists: bool,
    /// Longer files are not kept whole.
    whole_max: u64,
}

/// The object that a path names.
#[derive(Clone, Debug)]
pub enum Found {
    Whole(Arc<Content>),
    /// A file that is too long to be kept: it is read in pieces.
    Long(Arc<LongFile>),
    /// A directory without the slash at its end.
    Redirect,
    Refused(Status),
}

/// Metadata of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub len: u64,
    /// Whole seconds; none for generated contents.
    pub modified: Option<SystemTime>,
    /// With its quotation marks; empty for generated contents.
    pub etag: String,
    pub mime: String,
}

/// A whole file, or a listing.
#[derive(Debug)]
pub struct Content {
    pub about: About,
    pub bytes: Vec<u8>,
}

/// An open file.
#[derive(Debug)]
pub struct LongFile {
    pub about: About,
    file: File,
}

impl LongFile {
    /// Reads up to `max` bytes from `at` on.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter than it was.
    pub fn read(&self, at: u64, max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; max];
        let len = self.file.read_at(&mut bytes, at)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.truncate(len);
        Ok(bytes)
    }
}

/// Decodes and normalises a request's path: no NUL, no way out of the root, relative to it.
///
/// # Errors
/// [`Status::BadRequest`].
pub fn decode(path: &str) -> Result<Cow<'_, str>, Status> {
    match plain(path) {
        Some(normal) => Ok(Cow::Borrowed(normal)),
        None => decode_parts(path).map(Cow::Owned),
    }
}

/// Returns a path without its first slash if there is nothing in it to decode or to normalise.
fn plain(path: &str) -> Option<&str> {
    let rest = path.strip_prefix('/')?;
    let mut before = b'/';
    for &byte in rest.as_bytes() {
        let begins_oddly = before == b'/' && matches!(byte, b'/' | b'.');
        if begins_oddly || matches!(byte, b'%' | 0) {
            return None;
        }
        before = byte;
    }
    Some(rest)
}

fn decode_parts(path: &str) -> Result<String, Status> {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = path.as_bytes();
    let is_malformed = |at: usize| !is_hex(bytes.get(at + 1)) || !is_hex(bytes.get(at + 2));
    if (0..bytes.len()).any(|at| bytes[at] == b'%' && is_malformed(at)) {
        return Err(Status::BadRequest);
    }
    let decoded = percent_decode_str(path)
        .decode_utf8()
        .map_err(|_| Status::NotFound)?;
    if decoded.contains('\0') {
        return Err(Status::BadRequest);
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in decoded.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or(Status::BadRequest)?;
            }
            part => parts.push(part),
        }
    }
    let is_directory = decoded.ends_with('/') || decoded.ends_with("/.") || parts.is_empty();
    let mut normal = parts.join("/");
    if is_directory && !normal.is_empty() {
        normal.push('/');
    }
    Ok(normal)
}

impl Root {
    /// # Errors
    /// It is not a directory, or may not be read.
    pub fn open(path: &Path, lists: bool, whole_max: u64) -> io::Result<Root> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Root {
            directory,
            lists,
            whole_max,
        })
    }

    /// Opens a normalised path. The kernel ensures that neither `..` nor a symbolic link leads out
    /// of the root.
    fn open_beneath(&self, path: &str) -> Result<File, Errno> {
        let path = if path.is_empty() { "." } else { path };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.directory, path, flags, Mode::empty(), resolve) {
            Err(Errno::NOSYS) => self.open_step_by_step(path, flags),
            opened => opened.map(File::from),
        }
    }

    /// As [`Root::open_beneath`] where there is no `openat2` (sandboxes, valgrind): follows no
    /// symbolic link at all.
    fn open_step_by_step(&self, path: &str, flags: OFlags) -> Result<File, Errno> {
        let flags = flags | OFlags::NOFOLLOW;
        let mut file = openat(&self.directory, ".", flags, Mode::empty())?;
        for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
            if part == ".." {
                return Err(Errno::XDEV);
            }
            file = openat(&file, part, flags, Mode::empty())?;
        }
        Ok(File::from(file))
    }

    /// Looks up a normalised path.
    pub fn find(&self, path: &str) -> Found {
        match self.look_up(path) {
            Ok(found) => found,
            Err(error) => Found::Refused(status_of(&error)),
        }
    }

    fn look_up(&self, path: &str) -> io::Result<Found> {
        let file = self.open_beneath(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            if !path.is_empty() && !path.ends_with('/') {
                return Ok(Found::Redirect);
            }
            return self.find_in_directory(path, &file);
        }
        if !metadata.is_file() || path.ends_with('/') {
            return Ok(Found::Refused(Status::NotFound));
        }
        self.take_file(path, file)
    }

    fn find_in_directory(&self, path: &str, directory: &File) -> io::Result<Found> {
        let index = format!("{path}{INDEX}");
        match self.open_beneath(&index) {
            Ok(file) if file.metadata()?.is_file() => return self.take_file(&index, file),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        if !self.lists {
            return Ok(Found::Refused(Status::Forbidden));
        }
        let bytes = listing::page(path, directory.as_fd())?.into_bytes();
        Ok(Found::Whole(Arc::new(Content {
            about: About {
                len: bytes.len() as u64,
                modified: None,
                etag: String::new(),
                mime: "text/html; charset=utf-8".to_owned(),
            },
            bytes,
        })))
    }

    fn take_file(&self, path: &str, file: File) -> io::Result<Found> {
        let metadata = file.metadata()?;
        let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
        let about = About {
            len: metadata.len(),
            modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
            etag: format!(
                "\"{:x}-{:x}-{:x}\"",
                metadata.mtime(),
                metadata.mtime_nsec(),
                metadata.len()
            ),
            mime: mime(path),
        };
        if about.len > self.whole_max {
            return Ok(Found::Long(Arc::new(LongFile { about, file })));
        }
        let mut bytes = vec![0; about.len as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Found::Whole(Arc::new(Content { about, bytes })))
    }

    /// Returns whether a path still names the same file as when this was recorded.
    pub fn is_current(&self, path: &str, about: &About) -> bool {
        // A listing is made again.
        if about.modified.is_none() {
            return false;
        }
        let index = format!("{path}{INDEX}");
        let name = match path.is_empty() || path.ends_with('/') {
            true => &index,
            false => path,
        };
        let metadata = self
            .open_beneath(name)
            .ok()
            .and_then(|it| it.metadata().ok());
        metadata.is_some_and(|it| {
            let etag = format!("\"{:x}-{:x}-{:x}\"", it.mtime(), it.mtime_nsec(), it.len());
            it.is_file() && etag == about.etag
        })
    }
}

fn mime(path: &str) -> String {
    let guessed = mime_guess::from_path(path).first_raw();
    match guessed.unwrap_or("application/octet-stream") {
        text if text.starts_with("text/") => format!("{text}; charset=utf-8"),
        other => other.to_owned(),
    }
}

fn status_of(error: &io::Error) -> Status {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    match errno {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => Status::NotFound,
        Some(Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::LOOP) => Status::Forbidden,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Status::Unavailable,
        _ => Status::InternalError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_decode_to_themselves() {
        let paths = [
            "/", "/a", "/a/", "/a/b.c", "/a//b", "/./a", "/a/.", "/.a", "/a/../b", "/a%62", "//",
        ];
        for path in paths {
            if let Some(short) = plain(path) {
                assert_eq!(decode_parts(path).as_deref(), Ok(short), "{path}");
            }
        }
        assert_eq!(plain("/a/b.c"), Some("a/b.c"));
        assert_eq!(decode("/../a"), Err(Status::BadRequest));
    }

    #[test]
    fn no_path_or_symlink_leads_out_of_the_root() {
        let name = format!("slipstack-files-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(folder.join("root/sub")).unwrap();
        std::fs::write(folder.join("root/sub/in"), "inside").unwrap();
        std::fs::write(folder.join("out"), "outside").unwrap();
        std::os::unix::fs::symlink("../../out", folder.join("root/sub/link")).unwrap();
        std::os::unix::fs::symlink("..", folder.join("root/up")).unwrap();
        let root = Root::open(&folder.join("root"), true, 1 << 20).unwrap();
        let open = |path| {
            let opened = root.open_step_by_step(path, OFlags::RDONLY | OFlags::CLOEXEC);
            opened.map(|file| io::read_to_string(file).unwrap_or_default())
        };
        assert_eq!(open("sub/in"), Ok("inside".to_owned()));
        assert!(open("").is_ok() && open("sub/").is_ok());
        for path in ["sub/link", "up/out", "../out", "sub/../../out", "sub/in/x"] {
            assert!(open(path).is_err(), "{path}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
