//! Whether there is a program to start: most calls that fail name none, and then nothing is handed over.

use std::ffi::{CStr, CString};

use rustix::fs::{Access, AtFlags, CWD, FileType, accessat, statat};
use rustix::io::Errno;

/// Where `execvp` looks if PATH is not set.
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";

/// `false`: a start of `path` fails. (`true` promises nothing.)
///
/// As do_open_execat() looks: a regular file, and the right to execute it.
pub fn may_start(path: &CStr) -> bool {
    let is_file = statat(CWD, path, AtFlags::empty())
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    // Whoever may not even ask finds out by trying.
    is_file && accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS) != Err(Errno::ACCESS)
}

/// As [`may_start`], of `execvp`'s search for `file` in `path`, the value of PATH.
pub fn may_find(file: &CStr, path: Option<&[u8]>) -> bool {
    if file.to_bytes().contains(&b'/') {
        return may_start(file);
    }
    let mut folders = path.unwrap_or(PATH_DEFAULT).split(|&byte| byte == b':');
    folders.any(|folder| {
        let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        CString::new([folder, slash, file.to_bytes()].concat()).is_ok_and(|path| may_start(&path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_executed_may_start() {
        assert!(may_start(c"/bin/sh"));
        for path in [c"", c"/nonexistent/program", c"/bin", c"/etc/passwd"] {
            assert!(!may_start(path), "{path:?}");
        }
    }

    #[test]
    fn a_name_is_looked_for_in_all_folders() {
        assert!(may_find(c"sh", Some(b"/nonexistent:/bin")));
        assert!(may_find(c"sh", None));
        assert!(may_find(c"/bin/sh", Some(b"")));
        assert!(!may_find(c"sh", Some(b"/nonexistent:/etc")));
        assert!(!may_find(c"no-such-program-at-all", Some(b"/bin:")));
    }
}
