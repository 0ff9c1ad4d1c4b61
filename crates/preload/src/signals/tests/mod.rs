//! The table of actions.

mod abi;

use super::*;

#[test]
fn plain_settings_go_to_the_kernel_as_they_are() {
    let ignore = Action {
        handler: libc::SIG_IGN,
        flags: 0,
        mask: 0,
    };
    assert!(matches!(wanted(libc::SIGTERM, ignore), Wanted::Plain(a) if a == ignore));
}

#[test]
fn one_shot_and_nodefer_are_kept_from_the_kernel() {
    let flags = libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_RESTART;
    let action = Action {
        handler: 4096,
        flags,
        mask: 2,
    };
    match wanted(libc::SIGTERM, action) {
        Wanted::Trampoline { flags, mask } => {
            assert_eq!((flags, mask), (libc::SA_RESTART, 2));
        }
        Wanted::Plain(_) => panic!("a handler needs the trampoline"),
    }
}

#[test]
fn libc_keeps_its_own_signals() {
    assert!(!is_for_programs(32) && !is_for_programs(33) && !is_for_programs(0));
    assert!(!is_for_programs(libc::SIGKILL) && !is_for_programs(65));
    assert!(is_for_programs(34) && is_for_programs(libc::SIGCHLD));
}
