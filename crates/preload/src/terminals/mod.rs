//! Logins on a terminal: libc would put it under 0, 1 and 2 where nobody sees it, and what was
//! there of ours would stay in the table. So with `daemon`.

pub mod abi;
