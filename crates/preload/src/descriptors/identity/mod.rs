//! Calls that tell the program which socket a number stands for: `fstat` and its relatives, the
//! links in `/proc/self/fd`, and `kcmp`.
//!
//! All undecided sockets share one kernel file, and so do connections on the stack: each reports an
//! inode of its own.

pub mod abi;

/// Beginning of the kernel's name of a socket in `/proc/self/fd`.
pub const SOCKET: &[u8] = b"socket:[";
/// The kernel's limit of a number in decimal.
const DIGITS_MAX: usize = 10;

/// Returns the descriptor that `folder` and `path` name, if that is an entry of this process's
/// directory of descriptors. `folder` is not asked for an absolute path; `is_own` says whether a
/// thread is one of this process.
pub fn number_at<'a>(
    folder: impl FnOnce() -> &'a [u8],
    path: &[u8],
    is_own: impl Fn(u32) -> bool,
) -> Option<i32> {
    let folder = match path.first()? {
        b'/' => &[],
        _ => folder(),
    };
    let mut parts = folder
        .split(|byte| *byte == b'/')
        .chain(path.split(|byte| *byte == b'/'))
        .filter(|part| !part.is_empty() && *part != b".");
    match parts.next()? {
        b"dev" if parts.next()? == b"fd" => {}
        b"proc" => {
            let is_process = match parts.next()? {
                b"self" | b"thread-self" => true,
                id => is_own(decimal(id)?),
            };
            let mut part = parts.next()?;
            if part == b"task" {
                is_own(decimal(parts.next()?)?).then_some(())?;
                part = parts.next()?;
            }
            (is_process && part == b"fd").then_some(())?;
        }
        _ => return None,
    }
    let number = decimal(parts.next()?)?;
    match parts.next() {
        None => i32::try_from(number).ok(),
        Some(_) => None,
    }
}

/// Returns the path of what the link `path` points at.
pub fn behind(path: &[u8], target: &[u8]) -> Vec<u8> {
    let folder = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) if !target.starts_with(b"/") => &path[..=at],
        _ => &[],
    };
    [folder, target].concat()
}

fn decimal(digits: &[u8]) -> Option<u32> {
    let is_short = digits.len() <= DIGITS_MAX && digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits)
        .ok()
        .filter(|_| is_short)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(folder: &str, path: &str) -> Option<i32> {
        number_at(
            || folder.as_bytes(),
            path.as_bytes(),
            |id| id == 42 || id == 43,
        )
    }

    #[test]
    fn a_path_to_a_descriptor_of_this_process_is_recognised() {
        for path in [
            "/proc/self/fd/7",
            "/proc/thread-self/fd/7",
            "/proc/42/fd/7",
            "/proc/42/task/43/fd/7",
            "/proc//self/./fd/7",
            "/dev/fd/7",
        ] {
            assert_eq!(number("/proc/self/fdinfo", path), Some(7), "{path}");
        }
        assert_eq!(number("/proc/42/fd", "7"), Some(7));
        assert_eq!(number("/proc/42", "fd/7"), Some(7));
        for path in [
            "/proc/41/fd/7",
            "/proc/42/task/41/fd/7",
            "/proc/self/fdinfo/7",
            "/proc/self/fd/x",
            "/proc/self/fd/7/x",
            "/proc/self/fd/99999999999",
            "/tmp/7",
            "",
        ] {
            assert_eq!(number("/proc/self/fd", path), None, "{path}");
        }
        assert_eq!(number("/tmp", "7"), None);
    }

    #[test]
    fn a_link_leads_on_from_its_folder() {
        assert_eq!(
            behind(b"/dev/stdin", b"/proc/self/fd/0"),
            b"/proc/self/fd/0"
        );
        assert_eq!(behind(b"/dev/stdin", b"fd/0"), b"/dev/fd/0");
        assert_eq!(behind(b"link", b"fd/0"), b"fd/0");
    }
}
