//! The epoll calls.

mod ctl;
mod inherited;
mod wait;
