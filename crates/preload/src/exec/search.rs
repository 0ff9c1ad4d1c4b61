//! Check whether there is a program to start: most calls that fail name none, and then nothing is
//! handed over.

use std::ffi::{CStr, CString};

use rustix::fs::{Access, AtFlags, CWD, FileType, accessat, statat};
use rustix::io::Errno;

/// The search path of `execvp` if PATH is not set.
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";

/// `false`: a start of `path` fails. (`true` promises nothing.)
///
/// As do_open_execat() looks: a regular file, and the right to execute it.
fn may_start(path: &CStr) -> bool {
    let is_file = statat(CWD, path, AtFlags::empty())
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    // A process that may not even check finds out by trying.
    is_file && accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS) != Err(Errno::ACCESS)
}

/// The program at `path`, if it may start.
pub fn at(path: &CStr) -> Option<CString> {
    may_start(path).then(|| path.to_owned())
}

/// As [`at`], of a path that is relative to the folder `at`.
pub fn in_folder(at: i32, path: &CStr) -> Option<CString> {
    if at == libc::AT_FDCWD || path.to_bytes().first() == Some(&b'/') {
        return self::at(path);
    }
    let folder = format!("/proc/self/fd/{at}").into_bytes();
    let whole = match path.to_bytes() {
        // AT_EMPTY_PATH: the file itself.
        b"" => folder,
        name => [&folder, b"/".as_slice(), name].concat(),
    };
    self::at(&CString::new(whole).ok()?)
}

/// As [`at`], of `execvp`'s search for `file` in `path`, the value of PATH.
pub fn find(file: &CStr, path: Option<&[u8]>) -> Option<CString> {
    if file.to_bytes().contains(&b'/') {
        return at(file);
    }
    let mut folders = path.unwrap_or(PATH_DEFAULT).split(|&byte| byte == b':');
    folders.find_map(|folder| {
        let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        let path = CString::new([folder, slash, file.to_bytes()].concat()).ok()?;
        may_start(&path).then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executable_files_may_start() {
        assert!(may_start(c"/bin/sh"));
        for path in [c"", c"/nonexistent/program", c"/bin", c"/etc/passwd"] {
            assert!(!may_start(path), "{path:?}");
        }
    }

    #[test]
    fn a_name_is_looked_for_in_all_folders() {
        let shell = Some(c"/bin/sh".to_owned());
        assert_eq!(find(c"sh", Some(b"/nonexistent:/bin")), shell);
        assert_eq!(find(c"sh", None), shell);
        assert_eq!(find(c"/bin/sh", Some(b"")), shell);
        assert_eq!(find(c"sh", Some(b"/nonexistent:/etc")), None);
        assert_eq!(find(c"no-such-program-at-all", Some(b"/bin:")), None);
    }
}
