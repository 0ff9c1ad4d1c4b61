//! The table against libc and against real programs: no symbol that concerns sockets,
//! readiness, descriptors, signals or processes may be missing without a reason.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

macro_rules! symbols {
    ($($class:ident [$($name:ident),+] $arguments:tt -> $result:ty => $body:path;)*) => {
        /// Every name in the table.
        const TABLE: &[&str] = &[$($(stringify!($name)),+),*];
    };
}

include!("../src/table.rs");

/// Beginnings of names that may concern us.
const FAMILIES: &[&str] = &[
    "socket",
    "bind",
    "listen",
    "accept",
    "connect",
    "shutdown",
    "getsock",
    "getpeer",
    "setsock",
    "send",
    "recv",
    "read",
    "write",
    "pread",
    "pwrite",
    "close",
    "fclose",
    "fdopen",
    "freopen",
    "fileno",
    "dup",
    "fcntl",
    "ioctl",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "fdelt",
    "epoll",
    "open",
    "creat",
    "pipe",
    "eventfd",
    "signalfd",
    "timerfd",
    "inotify_init",
    "memfd",
    "splice",
    "tee",
    "vmsplice",
    "sockatmark",
    "isfdtype",
    "fork",
    "vfork",
    "Fork",
    "clone",
    "exec",
    "fexec",
    "posix_spawn",
    "system",
    "popen",
    "daemon",
    "login_tty",
    "exit",
    "Exit",
    "quick_exit",
    "sig",
    "bsd_signal",
    "ssignal",
    "sysv_signal",
    "pause",
    "syscall",
    "dprintf",
    "vdprintf",
    "copy_file",
    "pidfd",
];

/// Names of those families that stay libc's own, and why.
const LEFT: &[(&str, &[&str])] = &[
    (
        "a socket has no position: the anchor's ESPIPE is the right answer",
        &[
            "pread",
            "pread64",
            "__pread64",
            "__pread_chk",
            "__pread64_chk",
            "pwrite",
            "pwrite64",
            "__pwrite64",
            "preadv",
            "preadv64",
            "pwritev",
            "pwritev64",
        ],
    ),
    (
        "names and directories, not descriptors of ours",
        &[
            "readdir",
            "readdir64",
            "readdir_r",
            "readdir64_r",
            "opendir",
            "fdopendir",
            "closedir",
            "open_by_handle_at",
            "open_tree",
            "readahead",
            "bindtextdomain",
            "bind_textdomain_codeset",
            "duplocale",
            "__duplocale",
        ],
    ),
    (
        "makes or works on a kernel object; the anchor answers EINVAL for a socket of ours",
        &[
            "tee",
            "vmsplice",
            "copy_file_range",
            "timerfd_gettime",
            "timerfd_settime",
            "eventfd_read",
            "eventfd_write",
        ],
    ),
    (
        "system log and memory streams of libc's own",
        &[
            "openlog",
            "closelog",
            "open_memstream",
            "open_wmemstream",
            "openpty",
        ],
    ),
    (
        "the same on a socket of ours: the anchor is a socket",
        &["isfdtype"],
    ),
    (
        "checks and set arithmetic without a descriptor",
        &[
            "__fdelt_chk",
            "__fdelt_warn",
            "sigaddset",
            "__sigaddset",
            "sigdelset",
            "__sigdelset",
            "sigemptyset",
            "sigfillset",
            "sigismember",
            "__sigismember",
            "sigandset",
            "sigorset",
            "sigisemptyset",
            "sigabbrev_np",
            "sigdescr_np",
        ],
    ),
    (
        "put-off handlers are pending signals of the thread, so masks and waits stay the kernel's",
        &[
            "sigprocmask",
            "sigpending",
            "sigsuspend",
            "__sigsuspend",
            "sigpause",
            "__sigpause",
            "sigwait",
            "pause",
            "sigblock",
            "sigsetmask",
            "siggetmask",
            "sighold",
            "sigrelse",
            "sigaltstack",
            "sigstack",
            "sigqueue",
            "sigreturn",
            "siglongjmp",
            "__sigsetjmp",
            "pidfd_send_signal",
        ],
    ),
    ("not a signal", &["__signbit", "__signbitf", "__signbitl"]),
    (
        "not exported to new programs",
        &["sigvec", "bindresvport", "create_module"],
    ),
    ("seen through pthread_atfork", &["fork", "__fork"]),
    (
        "ends at our .fini_array and at_quick_exit",
        &["exit", "quick_exit"],
    ),
    ("closes streams only, at exit", &["fcloseall"]),
    (
        "describes a spawn; what it starts gets our environment by posix_spawn",
        &[
            "posix_spawn_file_actions_init",
            "posix_spawn_file_actions_destroy",
            "posix_spawn_file_actions_addchdir_np",
            "posix_spawn_file_actions_addclose",
            "posix_spawn_file_actions_addclosefrom_np",
            "posix_spawn_file_actions_adddup2",
            "posix_spawn_file_actions_addfchdir_np",
            "posix_spawn_file_actions_addopen",
            "posix_spawn_file_actions_addtcsetpgrp_np",
            "posix_spawnattr_init",
            "posix_spawnattr_destroy",
            "posix_spawnattr_getflags",
            "posix_spawnattr_setflags",
            "posix_spawnattr_getpgroup",
            "posix_spawnattr_setpgroup",
            "posix_spawnattr_getschedparam",
            "posix_spawnattr_setschedparam",
            "posix_spawnattr_getschedpolicy",
            "posix_spawnattr_setschedpolicy",
            "posix_spawnattr_getsigdefault",
            "posix_spawnattr_setsigdefault",
            "posix_spawnattr_getsigmask",
            "posix_spawnattr_setsigmask",
        ],
    ),
];

/// Programs and libraries whose imports are checked, where they are installed.
const PROGRAMS: &[&str] = &[
    "nginx",
    "redis-server",
    "redis-cli",
    "curl",
    "wrk",
    "ab",
    "iperf3",
    "python3",
    "ssh",
    "nc",
];
const LIBRARIES: &[&str] = &[
    "libcurl",
    "libapr-1",
    "libiperf",
    "libpython3",
    "libevent",
    "libuv",
];

/// `nm -D` of `file`: the names with their versions.
fn names(file: &Path, which: &str) -> Vec<(String, String)> {
    let out = Command::new("nm").args(["-D", which]).arg(file).output();
    let Ok(out) = out else { return Vec::new() };
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let symbol = |line: &str| {
        let word = line.split_whitespace().last()?;
        let (name, version) = word.split_once('@')?;
        Some((name.to_owned(), version.trim_start_matches('@').to_owned()))
    };
    text.lines().filter_map(symbol).collect()
}

fn concerns_us(name: &str) -> bool {
    let bare = name.trim_start_matches('_');
    FAMILIES.iter().any(|family| bare.starts_with(family))
}

fn is_known(name: &str) -> bool {
    TABLE.contains(&name) || LEFT.iter().any(|(_, names)| names.contains(&name))
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from));
    folders
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|file| file.exists())
}

/// The shared libraries of `file`, by `ldd`.
fn libraries(file: &Path) -> Vec<PathBuf> {
    let Ok(out) = Command::new("ldd").arg(file).output() else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let path = |line: &str| {
        line.split_whitespace()
            .find(|w| w.starts_with('/'))
            .map(PathBuf::from)
    };
    text.lines().filter_map(path).collect()
}

#[test]
fn libcs_socket_and_process_symbols_are_in_the_table_or_left_for_a_reason() {
    let own = std::env::current_exe().unwrap();
    let libc = libraries(&own)
        .into_iter()
        .find(|lib| lib.ends_with("libc.so.6"));
    let libc = libc.expect("the test program is linked with glibc");
    let missing: BTreeSet<String> = names(&libc, "--defined-only")
        .into_iter()
        .filter(|(_, version)| version != "GLIBC_PRIVATE")
        .map(|(name, _)| name)
        .filter(|name| concerns_us(name) && !is_known(name))
        .collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
}

#[test]
fn the_tested_programs_import_nothing_that_is_missing() {
    let mut files = Vec::new();
    for program in PROGRAMS {
        match find_program(program) {
            Some(file) => files.push(file),
            None => eprintln!("{program}: not installed, not looked at"),
        }
    }
    let mut linked: BTreeSet<PathBuf> = files.iter().flat_map(|file| libraries(file)).collect();
    linked.retain(|lib| {
        LIBRARIES
            .iter()
            .any(|name| lib.to_string_lossy().contains(name))
    });
    files.extend(linked);
    for file in files {
        let missing: Vec<String> = names(&file, "--undefined-only")
            .into_iter()
            .filter(|(_, version)| version.starts_with("GLIBC_"))
            .map(|(name, _)| name)
            .filter(|name| concerns_us(name) && !is_known(name))
            .collect();
        assert!(missing.is_empty(), "{}: {missing:?}", file.display());
    }
}

#[test]
fn no_symbol_is_in_the_table_twice_or_both_in_it_and_left() {
    let mut seen = BTreeSet::new();
    let left = LEFT.iter().flat_map(|(_, names)| names.iter());
    for name in TABLE.iter().chain(left) {
        assert!(seen.insert(name), "{name} is there twice");
    }
}
