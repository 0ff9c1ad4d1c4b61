//! `sendmsg` and `recvmsg`: buffers, addresses and control messages in one call.

pub mod abi;
pub mod many;
mod rights;

/// One control message: header, then data; `cmsg_len` counts both.
const HEADER_LEN: usize = size_of::<libc::cmsghdr>();
