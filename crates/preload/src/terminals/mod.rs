//! `login_tty`, `forkpty` and `daemon`: libc duplicates descriptors onto 0, 1 and 2 inside, where
//! the table would not see that a socket of ours was replaced.

pub mod abi;
