//! `--strict`: nothing falls back to the kernel unseen.

use slipstack_posix::{Divert, Errno};

use crate::world::{DGRAM, STREAM, World, fails, v4};

#[test]
fn connecting_beyond_the_stack_is_an_error_that_says_why() {
    let world = World::strict();
    for kind in [STREAM, DGRAM] {
        let fd = world.socket(kind);
        fails(
            world.process.connect(fd, &v4([198, 51, 100, 1], 9)),
            Errno::ENETUNREACH,
        );
    }
    let warnings = world.warnings.lock().unwrap();
    assert_eq!(warnings.len(), 2);
    assert!(warnings[0].contains("198.51.100.1:9") && warnings[0].contains("no route"));
}

#[test]
fn binding_an_address_of_the_kernels_is_an_error() {
    let world = World::strict();
    let fd = world.socket(STREAM);
    fails(
        world.process.bind(fd, &v4([198, 51, 100, 1], 0)),
        Errno::EADDRNOTAVAIL,
    );
}

#[test]
fn the_loopback_network_stays_with_the_kernel() {
    let world = World::strict();
    let fd = world.socket(STREAM);
    assert_eq!(world.process.bind(fd, &v4([127, 0, 0, 1], 0)), Ok(()));
    let fd = world.socket(STREAM);
    assert_eq!(
        world.process.connect(fd, &v4([127, 0, 0, 1], 9)),
        Err(Divert::Kernel)
    );
    assert!(world.warnings.lock().unwrap().is_empty());
}

#[test]
fn without_it_the_kernel_takes_over_silently_but_on_record() {
    let world = World::new();
    let fd = world.socket(STREAM);
    assert_eq!(
        world.process.connect(fd, &v4([198, 51, 100, 1], 9)),
        Err(Divert::Kernel)
    );
}
