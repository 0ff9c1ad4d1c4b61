//! The sockets of a forked child. (The fork itself is the preload layer's; here the child's
//! half runs in place of the parent's.)

use slipstack_posix::Errno;

use crate::world::{NONBLOCK, World, bytes_of, fails};

#[test]
fn after_a_fork_the_child_borrows_connections_and_has_listeners_of_its_own() {
    let world = World::new();
    let (listener, addr) = world.listener(NONBLOCK);
    world.poll_in(listener, libc::POLLIN);
    let (client, _server) = world.pair();
    world.process.fork_prepare();
    world.process.fork_child();
    fails(world.recv(client, 1, 0), Errno::ENOTCONN);
    fails(world.send(client, b"x"), Errno::ENOTCONN);
    assert_eq!(world.warnings.lock().unwrap().len(), 1);
    world.process.close(client).unwrap();
    // The listener listens on an engine of the child's own.
    world.poll_in(listener, libc::POLLIN);
    let again = world.socket(libc::SOCK_STREAM);
    world.process.connect(again, &bytes_of(addr)).unwrap();
    let accepted = world.process.accept4(listener, 0).unwrap();
    assert!(world.process.is_ours(accepted.fd));
}

#[test]
fn both_numbers_of_an_inherited_connection_are_one_socket_of_the_childs() {
    let world = World::new();
    let (client, _server) = world.pair();
    let copy = world.process.dup(client).unwrap();
    let inode = world.process.inode(client);
    world.process.fork_prepare();
    world.process.fork_child();
    world.nonblock(copy);
    assert_eq!(world.process.inode(client), inode);
    assert_eq!(world.process.inode(copy), inode);
    world.process.close(client).unwrap();
    fails(world.recv(copy, 1, 0), Errno::ENOTCONN);
    world.process.close(copy).unwrap();
    assert!(!world.process.is_ours(copy));
}

#[test]
fn members_of_an_inherited_set_are_the_childs_sockets_used_before_it_or_not() {
    let world = World::new();
    let (used, unused) = world.pair();
    let (closed, _) = world.pair();
    let set = world.process.epoll_create1(0).unwrap();
    let ctl = |operation, fd| {
        let event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 1,
        };
        world.process.epoll_ctl(set, operation, fd, Some(event))
    };
    for fd in [used, unused, closed] {
        ctl(libc::EPOLL_CTL_ADD, fd).unwrap();
    }
    world.process.fork_prepare();
    world.process.fork_child();
    fails(world.recv(used, 1, 0), Errno::ENOTCONN);
    world.process.close(closed).unwrap();
    for fd in [used, unused] {
        fails(ctl(libc::EPOLL_CTL_ADD, fd), Errno::EEXIST);
        ctl(libc::EPOLL_CTL_MOD, fd).unwrap();
        ctl(libc::EPOLL_CTL_DEL, fd).unwrap();
        fails(ctl(libc::EPOLL_CTL_DEL, fd), Errno::ENOENT);
    }
    world.process.close(set).unwrap();
}

#[test]
fn a_child_closes_what_it_has_not_used_and_keeps_the_rest() {
    let world = World::new();
    let (used, unused) = world.pair();
    let copy = world.process.dup(unused).unwrap();
    let (listener, _) = world.listener(NONBLOCK);
    let set = world.process.epoll_create1(0).unwrap();
    let event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 1,
    };
    let add = |set, fd| {
        world
            .process
            .epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, Some(event))
    };
    for fd in [used, unused, listener] {
        add(set, fd).unwrap();
    }
    world.process.fork_prepare();
    world.process.fork_child();
    world.process.close(set).unwrap();
    assert!(!world.process.is_ours(set) && world.process.is_ours(unused));
    fails(world.recv(used, 1, 0), Errno::ENOTCONN);
    // The test's kernel closes nothing with it.
    fails(
        world.process.close_range(unused as u32, unused as u32, 0),
        Errno::ENOSYS,
    );
    assert!(!world.process.is_ours(unused));
    let inode = world.process.inode(copy);
    assert!(inode.is_some(), "the other number is open");
    let fresh = world.process.epoll_create1(0).unwrap();
    add(fresh, copy).unwrap();
    fails(world.process.close_range(0, u32::MAX, 0), Errno::ENOSYS);
    for fd in [used, copy, listener, fresh] {
        assert!(!world.process.is_ours(fd), "{fd}");
    }
}

#[test]
fn a_childs_own_child_has_what_the_child_has_not_used() {
    let world = World::new();
    let (used, unused) = world.pair();
    let inodes = [used, unused].map(|fd| world.process.inode(fd));
    world.process.fork_prepare();
    world.process.fork_child();
    fails(world.recv(used, 1, 0), Errno::ENOTCONN);
    world.process.fork_prepare();
    world.process.fork_child();
    assert_eq!([used, unused].map(|fd| world.process.inode(fd)), inodes);
    fails(world.send(unused, b"x"), Errno::ENOTCONN);
}

#[test]
fn a_fork_changes_nothing_for_the_parent() {
    let world = World::new();
    let (client, server) = world.pair();
    world.process.fork_prepare();
    drop(world.process.fork_parent());
    world.send(client, b"x").unwrap();
    assert_eq!(world.recv(server, 1, 0).unwrap(), b"x");
}

#[test]
fn of_two_threads_that_fork_each_lends_to_its_own_child() {
    let world = World::new();
    let _connection = world.pair();
    world.process.fork_prepare();
    let lends = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            world.process.fork_prepare();
            world.process.fork_parent().is_some()
        });
        std::thread::sleep(std::time::Duration::from_millis(5));
        [world.process.fork_parent().is_some(), other.join().unwrap()]
    });
    assert_eq!(lends, [true, true]);
}

#[test]
fn a_listener_survives_exec_by_its_description() {
    let world = World::new();
    let (listener, addr) = world.listener(NONBLOCK);
    let text = world.process.before_exec(true).unwrap();
    let inode = world.process.inode(listener).unwrap();
    assert_eq!(text, format!("l{listener}n/{inode},k0"), "and its family");
    let next = World::new();
    next.process.inherit(&text);
    assert!(next.process.is_ours(listener));
    assert_eq!(next.process.inode(listener), Some(inode));
    next.poll_in(listener, libc::POLLIN);
    let client = next.socket(libc::SOCK_STREAM);
    next.process.connect(client, &bytes_of(addr)).unwrap();
    assert!(next.process.accept4(listener, 0).is_ok());
}

#[test]
fn a_program_with_only_an_inherited_connection_does_not_get_the_family() {
    let world = World::new();
    let (_client, server) = world.pair();
    world.process.fork_prepare();
    world.process.fork_child();
    let told = world.process.before_exec(true).unwrap_or_default();
    assert!(told.contains(&format!("h{server}/")), "{told}");
    assert!(!told.contains('k'), "{told}");
}

#[test]
fn a_dead_engine_ends_its_connections_and_not_its_listeners() {
    let world = World::new();
    let (listener, addr) = world.listener(NONBLOCK);
    world.poll_in(listener, libc::POLLIN);
    let (client, _server) = world.pair();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| world.recv(client, 1, 0));
        std::thread::sleep(std::time::Duration::from_millis(10));
        world.engine().die();
        fails(reader.join().unwrap(), Errno::ECONNRESET);
    });
    let hung_up = libc::POLLHUP | libc::POLLERR;
    assert_eq!(
        world.poll_in(client, 0) & libc::POLLHUP,
        hung_up & libc::POLLHUP
    );
    // The next wait finds another engine.
    world.poll_in(listener, libc::POLLIN);
    let again = world.socket(libc::SOCK_STREAM);
    world.process.connect(again, &bytes_of(addr)).unwrap();
    assert!(world.process.accept4(listener, 0).is_ok());
}

#[test]
fn a_thread_that_makes_an_engine_is_inside_a_call() {
    // A keeper that it starts would be taken for a program of the program's otherwise.
    let world = World::new();
    let (listener, _) = world.listener(NONBLOCK);
    world.poll_in(listener, libc::POLLIN);
    assert!(world.was_asked_inside_a_call());
}
