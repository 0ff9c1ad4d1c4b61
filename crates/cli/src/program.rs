//! Lookup of a program's file by its name.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::failure::Failure;

/// Returns the file of `name` and refuses programs that cannot work, with the reason.
///
/// # Errors
/// Not found, not executable, static, Go, 32-bit, foreign machine, or set-id.
pub fn find(name: &OsStr, path_variable: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let file = locate(name, path_variable)?;
    slipstack_attach::program::check(&file).map_err(|unfit| Failure::new(unfit.to_string()))?;
    Ok(file)
}

fn locate(name: &OsStr, path_variable: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let shown = Path::new(name).display();
    if name.is_empty() {
        return Err(Failure::new("the program's name is empty"));
    }
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return match is_executable(&file) {
            Some(true) => Ok(file),
            Some(false) => Err(Failure::new(format!("{shown} is not an executable file"))),
            None => Err(Failure::new(format!("program {shown} was not found"))),
        };
    }
    let fallback = OsString::from("/usr/local/bin:/usr/bin:/bin");
    let mut is_found = false;
    for folder in std::env::split_paths(path_variable.unwrap_or(&fallback)) {
        let file = folder.join(name);
        match is_executable(&file) {
            Some(true) => return Ok(file),
            Some(false) => is_found = true,
            None => {}
        }
    }
    Err(Failure::new(if is_found {
        format!("{shown} was found in PATH but is not an executable file")
    } else {
        format!("program {shown} was not found in PATH")
    }))
}

/// None: there is no such file.
fn is_executable(file: &Path) -> Option<bool> {
    let meta = std::fs::metadata(file).ok()?;
    Some(meta.is_file() && access(file, Access::EXEC_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_for_in_path_unless_they_have_a_slash() {
        let path = OsString::from("/usr/bin:/bin");
        assert!(find(OsStr::new("env"), Some(&path)).is_ok());
        let missing = find(OsStr::new("no-such-program"), Some(&path))
            .unwrap_err()
            .to_string();
        assert_eq!(missing, "program no-such-program was not found in PATH");
        assert!(find(OsStr::new("/bin/no-such"), None).is_err());
        assert!(find(OsStr::new("/etc/passwd"), None).is_err());
        assert!(find(OsStr::new("/bin"), None).is_err());
        assert!(find(OsStr::new(""), None).is_err());
    }
}
