//! `recvmmsg` and `sendmmsg`. The first message, and each that needs more than the stack's part of
//! a datagram socket, goes the way of `recvmsg` or `sendmsg`; the others follow in one look at the
//! socket.

pub mod abi;
