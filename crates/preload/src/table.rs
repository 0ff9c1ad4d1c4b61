// The table: class, names (the first is the one behind us), signature, body.
//
// descriptor  the first argument decides: ours goes to the body, others straight to libc
// creates     libc makes a kernel descriptor; the body forgets what the number was before
// whole       the body decides
// list        as whole, with C's open argument list (the function itself is assembly)

symbols! {
    // Bytes.
    descriptor [read, __read] (fd: c_int, buf: *mut c_void, len: size_t)
        -> ssize_t => io::abi::read;
    descriptor [__read_chk] (fd: c_int, buf: *mut c_void, len: size_t, room: size_t)
        -> ssize_t => io::abi::read_chk;
    descriptor [write, __write] (fd: c_int, buf: *const c_void, len: size_t)
        -> ssize_t => io::abi::write;
    descriptor [readv] (fd: c_int, vecs: *const iovec, count: c_int) -> ssize_t => io::abi::readv;
    descriptor [writev] (fd: c_int, vecs: *const iovec, count: c_int) -> ssize_t => io::abi::writev;
    descriptor [preadv2, preadv64v2] (
        fd: c_int, vecs: *const iovec, count: c_int, offset: off64_t, flags: c_int
    ) -> ssize_t => io::abi::preadv2;
    descriptor [pwritev2, pwritev64v2] (
        fd: c_int, vecs: *const iovec, count: c_int, offset: off64_t, flags: c_int
    ) -> ssize_t => io::abi::pwritev2;
    descriptor [sendfile, sendfile64] (out: c_int, file: c_int, offset: *mut off64_t, count: size_t)
        -> ssize_t => io::abi::sendfile;
    whole [splice] (
        from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, len: size_t,
        flags: c_uint
    ) -> ssize_t => io::abi::splice;
    descriptor [recv] (fd: c_int, buf: *mut c_void, len: size_t, flags: c_int)
        -> ssize_t => io::abi::recv;
    descriptor [__recv_chk] (fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int)
        -> ssize_t => io::abi::recv_chk;
    descriptor [recvfrom] (
        fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr,
        addr_len: *mut socklen_t
    ) -> ssize_t => io::abi::recvfrom;
    descriptor [__recvfrom_chk] (
        fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int, addr: *mut sockaddr,
        addr_len: *mut socklen_t
    ) -> ssize_t => io::abi::recvfrom_chk;
    descriptor [send, __send] (fd: c_int, buf: *const c_void, len: size_t, flags: c_int)
        -> ssize_t => io::abi::send;
    descriptor [sendto] (
        fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr,
        addr_len: socklen_t
    ) -> ssize_t => io::abi::sendto;
    whole [recvmsg] (fd: c_int, msg: *mut msghdr, flags: c_int)
        -> ssize_t => messages::abi::recvmsg;
    whole [sendmsg] (fd: c_int, msg: *const msghdr, flags: c_int)
        -> ssize_t => messages::abi::sendmsg;
    whole [recvmmsg] (
        fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec
    ) -> c_int => messages::many::abi::recvmmsg;
    whole [sendmmsg] (fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int)
        -> c_int => messages::many::abi::sendmmsg;

    // Sockets.
    whole [socket] (domain: c_int, kind: c_int, protocol: c_int) -> c_int => sockets::abi::socket;
    whole [socketpair] (domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int)
        -> c_int => sockets::abi::socketpair;
    whole [bind] (fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int => sockets::abi::bind;
    whole [listen] (fd: c_int, backlog: c_int) -> c_int => sockets::abi::listen;
    descriptor [accept] (fd: c_int, addr: *mut sockaddr, len: *mut socklen_t)
        -> c_int => sockets::abi::accept;
    descriptor [accept4] (fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int)
        -> c_int => sockets::abi::accept4;
    descriptor [connect, __connect] (fd: c_int, addr: *const sockaddr, len: socklen_t)
        -> c_int => sockets::abi::connect;
    descriptor [shutdown] (fd: c_int, how: c_int) -> c_int => sockets::abi::shutdown;
    descriptor [getsockname] (fd: c_int, addr: *mut sockaddr, len: *mut socklen_t)
        -> c_int => sockets::abi::getsockname;
    descriptor [getpeername] (fd: c_int, addr: *mut sockaddr, len: *mut socklen_t)
        -> c_int => sockets::abi::getpeername;
    descriptor [getsockopt] (
        fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t
    ) -> c_int => sockets::abi::getsockopt;
    descriptor [setsockopt] (
        fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t
    ) -> c_int => sockets::abi::setsockopt;
    descriptor [sockatmark] (fd: c_int) -> c_int => sockets::abi::sockatmark;

    // Interfaces.
    whole [getifaddrs] (list: *mut *mut ifaddrs) -> c_int => interfaces::abi::getifaddrs;
    whole [freeifaddrs] (list: *mut ifaddrs) -> () => interfaces::abi::freeifaddrs;
    whole [if_nametoindex] (name: *const c_char) -> c_uint => interfaces::abi::if_nametoindex;
    whole [if_indextoname] (index: c_uint, name: *mut c_char)
        -> *mut c_char => interfaces::abi::if_indextoname;
    whole [getaddrinfo] (
        node: *const c_char, service: *const c_char, hints: *const addrinfo,
        found: *mut *mut addrinfo
    ) -> c_int => interfaces::abi::getaddrinfo;

    // Readiness.
    whole [poll, __poll] (fds: *mut pollfd, count: nfds_t, timeout: c_int)
        -> c_int => readiness::abi::poll;
    whole [__poll_chk] (fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t)
        -> c_int => readiness::abi::poll_chk;
    whole [ppoll] (fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t)
        -> c_int => readiness::abi::ppoll;
    whole [__ppoll_chk] (
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        room: size_t
    ) -> c_int => readiness::abi::ppoll_chk;
    whole [select, __select] (
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval
    ) -> c_int => readiness::abi::select;
    whole [pselect] (
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t
    ) -> c_int => readiness::abi::pselect;
    whole [epoll_create] (size: c_int) -> c_int => readiness::abi::epoll_create;
    whole [epoll_create1] (flags: c_int) -> c_int => readiness::abi::epoll_create1;
    descriptor [epoll_ctl] (epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event)
        -> c_int => readiness::abi::epoll_ctl;
    descriptor [epoll_wait] (epfd: c_int, events: *mut epoll_event, count: c_int, timeout: c_int)
        -> c_int => readiness::abi::epoll_wait;
    descriptor [epoll_pwait] (
        epfd: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t
    ) -> c_int => readiness::abi::epoll_pwait;
    descriptor [epoll_pwait2] (
        epfd: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int => readiness::abi::epoll_pwait2;

    // Descriptors.
    whole [close, __close] (fd: c_int) -> c_int => descriptors::closing::abi::close;
    whole [closefrom] (first: c_int) -> () => descriptors::closing::abi::closefrom;
    whole [close_range] (first: c_uint, last: c_uint, flags: c_int)
        -> c_int => descriptors::closing::abi::close_range;
    descriptor [dup] (fd: c_int) -> c_int => descriptors::abi::dup;
    whole [dup2, __dup2] (old: c_int, new: c_int) -> c_int => descriptors::abi::dup2;
    whole [dup3] (old: c_int, new: c_int, flags: c_int) -> c_int => descriptors::abi::dup3;
    whole [fcntl, __fcntl, fcntl64] (fd: c_int, command: c_int, argument: usize)
        -> c_int => descriptors::abi::fcntl;
    descriptor [ioctl] (fd: c_int, request: c_ulong, argument: *mut c_void)
        -> c_int => descriptors::abi::ioctl;
    descriptor [fstat] (fd: c_int, status: *mut stat) -> c_int => descriptors::identity::abi::fstat;
    descriptor [fstat64] (fd: c_int, status: *mut stat)
        -> c_int => descriptors::identity::abi::fstat64;
    whole [__fxstat] (version: c_int, fd: c_int, status: *mut stat)
        -> c_int => descriptors::identity::abi::fxstat;
    whole [__fxstat64] (version: c_int, fd: c_int, status: *mut stat)
        -> c_int => descriptors::identity::abi::fxstat64;
    whole [stat] (path: *const c_char, status: *mut stat)
        -> c_int => descriptors::identity::abi::stat;
    whole [stat64] (path: *const c_char, status: *mut stat)
        -> c_int => descriptors::identity::abi::stat64;
    whole [__xstat] (version: c_int, path: *const c_char, status: *mut stat)
        -> c_int => descriptors::identity::abi::xstat;
    whole [__xstat64] (version: c_int, path: *const c_char, status: *mut stat)
        -> c_int => descriptors::identity::abi::xstat64;
    whole [fstatat] (at: c_int, path: *const c_char, status: *mut stat, flags: c_int)
        -> c_int => descriptors::identity::abi::fstatat;
    whole [fstatat64] (at: c_int, path: *const c_char, status: *mut stat, flags: c_int)
        -> c_int => descriptors::identity::abi::fstatat64;
    whole [__fxstatat] (
        version: c_int, at: c_int, path: *const c_char, status: *mut stat, flags: c_int
    ) -> c_int => descriptors::identity::abi::fxstatat;
    whole [__fxstatat64] (
        version: c_int, at: c_int, path: *const c_char, status: *mut stat, flags: c_int
    ) -> c_int => descriptors::identity::abi::fxstatat64;
    whole [statx] (
        at: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut libc::statx
    ) -> c_int => descriptors::identity::abi::statx;
    whole [readlink] (path: *const c_char, buf: *mut c_char, len: size_t)
        -> ssize_t => descriptors::identity::abi::readlink;
    whole [__readlink_chk] (path: *const c_char, buf: *mut c_char, len: size_t, room: size_t)
        -> ssize_t => descriptors::identity::abi::readlink_chk;
    whole [readlinkat] (at: c_int, path: *const c_char, buf: *mut c_char, len: size_t)
        -> ssize_t => descriptors::identity::abi::readlinkat;
    whole [__readlinkat_chk] (
        at: c_int, path: *const c_char, buf: *mut c_char, len: size_t, room: size_t
    ) -> ssize_t => descriptors::identity::abi::readlinkat_chk;
    creates [open, __open] (path: *const c_char, flags: c_int, mode: mode_t)
        -> c_int => descriptors::created;
    creates [open64, __open64] (path: *const c_char, flags: c_int, mode: mode_t)
        -> c_int => descriptors::created;
    creates [__open_2] (path: *const c_char, flags: c_int) -> c_int => descriptors::created;
    creates [__open64_2] (path: *const c_char, flags: c_int) -> c_int => descriptors::created;
    creates [openat] (at: c_int, path: *const c_char, flags: c_int, mode: mode_t)
        -> c_int => descriptors::created;
    creates [openat64] (at: c_int, path: *const c_char, flags: c_int, mode: mode_t)
        -> c_int => descriptors::created;
    creates [__openat_2] (at: c_int, path: *const c_char, flags: c_int)
        -> c_int => descriptors::created;
    creates [__openat64_2] (at: c_int, path: *const c_char, flags: c_int)
        -> c_int => descriptors::created;
    creates [creat] (path: *const c_char, mode: mode_t) -> c_int => descriptors::created;
    creates [creat64] (path: *const c_char, mode: mode_t) -> c_int => descriptors::created;
    creates [eventfd] (count: c_uint, flags: c_int) -> c_int => descriptors::created;
    creates [signalfd] (fd: c_int, mask: *const sigset_t, flags: c_int)
        -> c_int => descriptors::created;
    creates [timerfd_create] (clock: c_int, flags: c_int) -> c_int => descriptors::created;
    creates [inotify_init] () -> c_int => descriptors::created;
    creates [inotify_init1] (flags: c_int) -> c_int => descriptors::created;
    creates [memfd_create] (name: *const c_char, flags: c_uint) -> c_int => descriptors::created;
    creates [pidfd_open] (pid: pid_t, flags: c_uint) -> c_int => descriptors::created;
    creates [pidfd_getfd] (pid: c_int, fd: c_int, flags: c_uint) -> c_int => descriptors::created;
    whole [pipe, __pipe] (pair: *mut c_int) -> c_int => descriptors::abi::pipe;
    whole [pipe2] (pair: *mut c_int, flags: c_int) -> c_int => descriptors::abi::pipe2;

    // stdio.
    descriptor [fdopen] (fd: c_int, mode: *const c_char) -> *mut FILE => stdio::abi::fdopen;
    whole [fclose] (file: *mut FILE) -> c_int => stdio::abi::fclose;
    whole [fileno, fileno_unlocked] (file: *mut FILE) -> c_int => stdio::abi::fileno;
    whole [freopen] (path: *const c_char, mode: *const c_char, file: *mut FILE)
        -> *mut FILE => stdio::abi::freopen;
    whole [freopen64] (path: *const c_char, mode: *const c_char, file: *mut FILE)
        -> *mut FILE => stdio::abi::freopen64;
    list [dprintf] (fd: c_int, format: *const c_char) -> c_int => stdio::abi::print_list;
    list [__dprintf_chk] (fd: c_int, flag: c_int, format: *const c_char)
        -> c_int => stdio::abi::print_list_checked;
    descriptor [vdprintf] (fd: c_int, format: *const c_char, list: *mut c_void)
        -> c_int => stdio::abi::vdprintf;
    descriptor [__vdprintf_chk] (fd: c_int, flag: c_int, format: *const c_char, list: *mut c_void)
        -> c_int => stdio::abi::vdprintf_chk;

    // Programs.
    whole [execve] (path: *const c_char, argv: *const *const c_char, envp: *const *const c_char)
        -> c_int => exec::abi::execve;
    whole [execv] (path: *const c_char, argv: *const *const c_char) -> c_int => exec::abi::execv;
    whole [execvp] (file: *const c_char, argv: *const *const c_char) -> c_int => exec::abi::execvp;
    whole [execvpe] (file: *const c_char, argv: *const *const c_char, envp: *const *const c_char)
        -> c_int => exec::abi::execvpe;
    whole [fexecve] (fd: c_int, argv: *const *const c_char, envp: *const *const c_char)
        -> c_int => exec::abi::fexecve;
    whole [execveat] (
        at: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char,
        flags: c_int
    ) -> c_int => exec::abi::execveat;
    list [execl] (path: *const c_char, argv: *const *const c_char) -> c_int => exec::abi::execl;
    list [execlp] (file: *const c_char, argv: *const *const c_char) -> c_int => exec::abi::execlp;
    list [execle] (path: *const c_char, argv: *const *const c_char) -> c_int => exec::abi::execle;
    whole [posix_spawn] (
        pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, argv: *const *const c_char,
        envp: *const *const c_char
    ) -> c_int => exec::abi::posix_spawn;
    whole [posix_spawnp] (
        pid: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, argv: *const *const c_char,
        envp: *const *const c_char
    ) -> c_int => exec::abi::posix_spawnp;
    whole [system] (command: *const c_char) -> c_int => exec::abi::system;
    whole [popen] (command: *const c_char, kind: *const c_char) -> *mut FILE => exec::abi::popen;

    list [dlopen] (path: *const c_char, flags: c_int) -> *mut c_void => loading::abi::way;

    // The process.
    whole [vfork, __vfork] () -> pid_t => life::abi::vfork;
    whole [_Fork] () -> pid_t => life::abi::plain_fork;
    whole [setns] (fd: c_int, kinds: c_int) -> c_int => life::abi::setns;
    whole [unshare] (kinds: c_int) -> c_int => life::abi::unshare;
    whole [clone, __clone] (
        run: *const c_void, stack: *mut c_void, flags: c_int, with: *mut c_void,
        parent: *mut c_void, storage: *mut c_void, child: *mut c_void
    ) -> c_int => life::abi::clone;
    whole [daemon] (keeps_directory: c_int, keeps_files: c_int) -> c_int => terminals::abi::daemon;
    whole [login_tty] (fd: c_int) -> c_int => terminals::abi::login_tty;
    whole [forkpty] (
        master: *mut c_int, name: *mut c_char, settings: *const termios, size: *const winsize
    ) -> pid_t => terminals::abi::forkpty;
    whole [_exit, _Exit] (status: c_int) -> ! => life::abi::exit_now;
    whole [syscall] (number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize)
        -> c_long => syscall::abi::syscall;
    whole [capset] (header: *mut CapabilityHeader, data: *const c_void)
        -> c_int => privileges::abi::capset;
    whole [prctl] (operation: c_int, a: usize, b: usize, c: usize, d: usize)
        -> c_int => privileges::abi::prctl;
    whole [setrlimit, setrlimit64] (resource: c_uint, new: *const rlimit)
        -> c_int => privileges::abi::setrlimit;
    whole [prlimit, prlimit64] (pid: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit)
        -> c_int => privileges::abi::prlimit;
    whole [pthread_create] (
        thread: *mut pthread_t, attributes: *const pthread_attr_t, run: *const c_void,
        with: *mut c_void
    ) -> c_int => cores::abi::create;
    whole [pthread_cancel] (thread: pthread_t) -> c_int => cancel::abi::cancel;

    // Signals.
    whole [sigaction, __sigaction] (
        signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction
    ) -> c_int => signals::abi::sigaction;
    whole [signal, bsd_signal, ssignal] (signal: c_int, handler: usize)
        -> usize => signals::abi::signal;
    whole [sysv_signal, __sysv_signal] (signal: c_int, handler: usize)
        -> usize => signals::abi::sysv_signal;
    whole [siginterrupt] (signal: c_int, interrupts: c_int) -> c_int => signals::abi::siginterrupt;
    whole [sigignore] (signal: c_int) -> c_int => signals::abi::sigignore;
    whole [sigwaitinfo] (set: *const sigset_t, info: *mut libc::siginfo_t)
        -> c_int => signals::abi::sigwaitinfo;
    whole [sigtimedwait, __sigtimedwait] (
        set: *const sigset_t, info: *mut libc::siginfo_t, timeout: *const timespec
    ) -> c_int => signals::abi::sigtimedwait;
    whole [sigset] (signal: c_int, handler: usize) -> usize => signals::abi::sigset;
}
