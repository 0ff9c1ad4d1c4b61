//! epoll, poll and select.

pub mod abi;

/// Most descriptors of one `poll`.
fn limit() -> i32 {
    crate::descriptors::abi::ff_getmaxfd()
}
