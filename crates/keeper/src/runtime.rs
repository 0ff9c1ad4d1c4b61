//! A keeper's files.
//!
//! Each device has a directory, keyed by network namespace and interface name, below a base
//! directory of the user: `/run/slipstack` for root, `$XDG_RUNTIME_DIR/slipstack` otherwise. It
//! holds the lock that makes the keeper unique, its control socket, its log, the sockets of
//! instances, and the locks of slots in use.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use slipstack_mem::process::explained;

/// Longest interface name the kernel takes (`IFNAMSIZ` - 1).
pub const INTERFACE_NAME_MAX: usize = 15;
/// Longest name of an instance; the socket's path must fit in `sun_path`.
pub const INSTANCE_NAME_MAX: usize = 32;

/// Reason why a runtime directory could not be used.
#[derive(Debug)]
pub enum RuntimeError {
    /// No base directory: not root and no `XDG_RUNTIME_DIR`.
    NoBase,
    /// The interface or instance name cannot be a file name.
    BadName(String),
    Io {
        path: PathBuf,
        error: io::Error,
    },
}

impl std::fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RuntimeError::NoBase => write!(
                f,
                "no runtime directory: run as root or set XDG_RUNTIME_DIR to a directory of your \
                 own"
            ),
            RuntimeError::BadName(name) => write!(
                f,
                "{name:?} cannot be used as a name: use 1 to {INTERFACE_NAME_MAX} letters, digits, \
                 '-', '_' or '.' (instances up to {INSTANCE_NAME_MAX})"
            ),
            RuntimeError::Io { path, error } => {
                write!(f, "cannot use {}: {}", path.display(), explained(error))?;
                let is_the_place = matches!(
                    error.kind(),
                    io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::StorageFull
                );
                if is_the_place {
                    write!(f, "; name another directory with --run-dir")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for RuntimeError {}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> RuntimeError + '_ {
    move |error| RuntimeError::Io {
        path: path.to_path_buf(),
        error,
    }
}

fn check_name(name: &str, len_max: usize) -> Result<(), RuntimeError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty()
        || name.len() > len_max
        || name.starts_with('.')
        || !name.chars().all(is_plain)
    {
        return Err(RuntimeError::BadName(name.chars().take(64).collect()));
    }
    Ok(())
}

/// The base directory of root's keepers, which serve the programs of others too.
pub const ROOT_BASE: &str = "/run/slipstack";

/// The base directory of all keepers of this user.
pub fn base_directory() -> Result<PathBuf, RuntimeError> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(ROOT_BASE));
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if !dir.is_empty() => Ok(PathBuf::from(dir).join("slipstack")),
        _ => Err(RuntimeError::NoBase),
    }
}

/// Inode of the network namespace this thread is in.
pub fn network_namespace() -> Result<u64, RuntimeError> {
    let path = Path::new("/proc/thread-self/ns/net");
    Ok(fs::metadata(path).map_err(io_error(path))?.ino())
}

/// Returns the inode of the network namespace of a process; `None` if there is none or access is
/// denied.
#[must_use]
pub fn network_namespace_of(pid: u32) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{pid}/ns/net")).ok()?.ino())
}

/// The directory of one keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeDir {
    path: PathBuf,
    interface: String,
}

impl RuntimeDir {
    /// Names the directory for an interface below a base directory. Creates nothing.
    pub fn below(base: &Path, namespace: u64, interface: &str) -> Result<RuntimeDir, RuntimeError> {
        check_name(interface, INTERFACE_NAME_MAX)?;
        Ok(RuntimeDir {
            path: base.join(format!("{namespace}-{interface}")),
            interface: interface.to_owned(),
        })
    }

    pub fn all_below(base: &Path, namespace: u64) -> Result<Vec<RuntimeDir>, RuntimeError> {
        RuntimeDir::list(base, |of| of == namespace)
    }

    /// All keepers' directories of other network namespaces than this.
    pub fn all_elsewhere(base: &Path, namespace: u64) -> Result<Vec<RuntimeDir>, RuntimeError> {
        RuntimeDir::list(base, |of| of != namespace)
    }

    /// The directories of the namespaces that are wanted.
    fn list(base: &Path, is_wanted: impl Fn(u64) -> bool) -> Result<Vec<RuntimeDir>, RuntimeError> {
        let entries = match fs::read_dir(base) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error(base)(error)),
        };
        let mut found: Vec<RuntimeDir> = entries
            .flatten()
            // Another name of a directory that is listed by its first one.
            .filter(|entry| !entry.path().is_symlink())
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let (namespace, interface) = name.split_once('-')?;
                let interface = interface.to_owned();
                check_name(&interface, INTERFACE_NAME_MAX).ok()?;
                if !is_wanted(namespace.parse().ok()?) {
                    return None;
                }
                Some(RuntimeDir {
                    path: entry.path(),
                    interface,
                })
            })
            .collect();
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn interface(&self) -> &str {
        &self.interface
    }

    pub fn control_socket(&self) -> PathBuf {
        self.path.join("control")
    }

    pub fn log_file(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Socket of the instance `name` on this device.
    pub fn instance_socket(&self, name: &str) -> Result<PathBuf, RuntimeError> {
        check_name(name, INSTANCE_NAME_MAX)?;
        Ok(self.path.join(format!("instance-{name}")))
    }

    /// Names of the instances that have a socket here.
    pub fn instances(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.path) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let name = name.strip_prefix("instance-")?;
                check_name(name, INSTANCE_NAME_MAX).ok()?;
                Some(name.to_owned())
            })
            .collect();
        names.sort();
        names
    }

    /// Creates the directory, and the base directory if there is none. Every user may look up a
    /// socket in it; permissions are decided on the connection, by credentials. An existing base
    /// directory stays as it is: it may be `/tmp`.
    pub fn create(&self) -> Result<(), RuntimeError> {
        self.drop_stale_name();
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o755);
        for dir in [self.path.parent(), Some(self.path.as_path())]
            .into_iter()
            .flatten()
            .filter(|dir| !dir.is_dir())
        {
            builder.create(dir).map_err(io_error(dir))?;
            // The mode does not depend on the umask.
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).map_err(io_error(dir))?;
        }
        Ok(())
    }

    /// Makes the directory known by the name of another interface too. `false`: another process
    /// holds that.
    pub fn claim_name(&self, interface: &str) -> Result<bool, RuntimeError> {
        let other = self.beside(interface)?;
        other.drop_stale_name();
        if other.path.is_dir() && !other.path.is_symlink() {
            match other.try_lock()? {
                Some(_lock) => other.remove(),
                None => return Ok(false),
            }
        }
        let name = self.path.file_name().unwrap_or_default();
        match symlink(name, &other.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(self.is_also(&other)),
            Err(error) => Err(io_error(&other.path)(error)),
        }
    }

    /// Returns whether it is the directory of this interface, the first of its device or another
    /// one.
    pub fn is_of(&self, interface: &str) -> bool {
        let other = self.beside(interface);
        self.interface == interface || other.is_ok_and(|other| self.is_also(&other))
    }

    /// The directory of another interface beside this one.
    fn beside(&self, interface: &str) -> Result<RuntimeDir, RuntimeError> {
        check_name(interface, INTERFACE_NAME_MAX)?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let namespace = name.split('-').next().unwrap_or_default();
        Ok(RuntimeDir {
            path: self.path.with_file_name(format!("{namespace}-{interface}")),
            interface: interface.to_owned(),
        })
    }

    /// Returns whether the other is a name of this one.
    fn is_also(&self, other: &RuntimeDir) -> bool {
        let leads_to = fs::read_link(&other.path);
        leads_to.is_ok_and(|to| Some(to.as_os_str()) == self.path.file_name())
    }

    /// A keeper that was killed has left the name of an interface behind.
    fn drop_stale_name(&self) {
        let is_held = || matches!(self.try_lock(), Ok(None));
        if self.path.is_symlink() && !(self.path.is_dir() && is_held()) {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Takes the lock that makes the keeper unique. `None`: another process holds it.
    pub fn try_lock(&self) -> Result<Option<RuntimeLock>, RuntimeError> {
        let path = self.path.join("lock");
        loop {
            let fd = open(
                &path,
                OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC,
                Mode::from_raw_mode(0o600),
            )
            .map_err(|e| io_error(&path)(e.into()))?;
            match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(io_error(&path)(error.into())),
            }
            // The former keeper removes the file while it holds the lock: a lock on a removed file
            // excludes no other process.
            if is_same_file(&fd, &path) {
                return Ok(Some(RuntimeLock { fd }));
            }
            fs::create_dir_all(&self.path).map_err(io_error(&self.path))?;
        }
    }

    /// Removes the directory and, when it was the last, the base directory. The caller holds the
    /// lock.
    pub fn remove(&self) {
        if let Ok(entries) = fs::read_dir(&self.path) {
            for entry in entries.flatten().filter(|e| e.file_name() != "lock") {
                let _ = fs::remove_file(entry.path());
            }
        }
        let _ = fs::remove_file(self.path.join("lock"));
        let _ = fs::remove_dir(&self.path);
        self.remove_names();
        if let Some(base) = self.path.parent() {
            let _ = fs::remove_dir(base);
        }
    }
}

impl RuntimeDir {
    /// Removes the names that [`RuntimeDir::claim_name`] made.
    fn remove_names(&self) {
        let base = self.path.parent().and_then(|base| fs::read_dir(base).ok());
        for entry in base.into_iter().flatten().flatten() {
            let leads_to = fs::read_link(entry.path());
            if leads_to.is_ok_and(|to| Some(to.as_os_str()) == self.path.file_name()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn is_same_file(fd: &OwnedFd, path: &Path) -> bool {
    match (rustix::fs::fstat(fd), fs::metadata(path)) {
        (Ok(ours), Ok(named)) => ours.st_ino == named.ino() && ours.st_dev == named.dev(),
        _ => false,
    }
}

/// The keeper's lock. It belongs to the open file: a forked standby holds it too.
#[derive(Debug)]
pub struct RuntimeLock {
    fd: OwnedFd,
}

impl RuntimeLock {
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(topic: &str) -> Scratch {
            let path =
                std::env::temp_dir().join(format!("ss-runtime-{topic}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        let base = Path::new("/nowhere");
        for name in ["", "..", ".x", "a/b", "a b", "abcdefghijklmnop", "é"] {
            assert!(RuntimeDir::below(base, 1, name).is_err(), "{name:?}");
        }
        let dir = RuntimeDir::below(base, 1, "eth0.5").expect("plain name");
        assert!(dir.instance_socket("../x").is_err());
        assert!(dir.instance_socket("a").is_ok());
    }

    #[test]
    fn the_lock_is_held_by_one_and_free_after_removal() {
        let scratch = Scratch::new("lock");
        let dir = RuntimeDir::below(&scratch.0, 7, "slip0").expect("name");
        dir.create().expect("create");
        let lock = dir.try_lock().expect("lock").expect("free");
        assert!(dir.try_lock().expect("second look").is_none());
        dir.remove();
        assert!(!dir.path().exists());
        drop(lock);
        dir.create().expect("create again");
        assert!(dir.try_lock().expect("lock").is_some());
    }

    #[test]
    fn a_base_directory_that_was_there_keeps_its_mode() {
        let scratch = Scratch::new("mode");
        fs::create_dir(&scratch.0).expect("base");
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o1777)).expect("mode");
        let dir = RuntimeDir::below(&scratch.0, 7, "slip0").expect("name");
        dir.create().expect("create");
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o7777;
        assert_eq!(mode(&scratch.0), 0o1777);
        assert_eq!(mode(dir.path()), 0o755);
    }

    #[test]
    fn directories_of_other_namespaces_are_not_listed() {
        let scratch = Scratch::new("list");
        for (namespace, name) in [(7, "slip0"), (7, "eth0"), (8, "eth1")] {
            RuntimeDir::below(&scratch.0, namespace, name)
                .expect("name")
                .create()
                .expect("create");
        }
        let names: Vec<String> = RuntimeDir::all_below(&scratch.0, 7)
            .expect("list")
            .iter()
            .map(|d| d.interface().to_owned())
            .collect();
        assert_eq!(names, ["eth0", "slip0"]);
    }

    #[test]
    fn a_directory_is_known_by_the_names_of_all_its_interfaces() {
        let scratch = Scratch::new("names");
        let named = |name| RuntimeDir::below(&scratch.0, 7, name).expect("name");
        let dir = named("eth0");
        dir.create().expect("create");
        let lock = dir.try_lock().expect("lock").expect("free");
        assert!(dir.claim_name("eth1").expect("claim"));
        assert!(dir.claim_name("eth1").expect("claim again"));
        assert!(dir.is_of("eth1") && !dir.is_of("eth2"));
        // A keeper of the other interface finds it held, and the stack is listed once.
        assert!(named("eth1").try_lock().expect("look").is_none());
        assert!(!named("eth2").claim_name("eth1").expect("claim of another"));
        assert_eq!(RuntimeDir::all_below(&scratch.0, 7).expect("list").len(), 1);
        drop(lock);
        // Its keeper is dead: the name is free again.
        named("eth1").create().expect("create");
        assert!(!named("eth1").path().is_symlink());
        assert!(
            dir.claim_name("eth1")
                .expect("an empty directory gives way")
        );
        dir.remove();
        assert!(!named("eth1").path().is_symlink());
    }
}
