//! The calls of a process whose engine loops back to itself, beside the real kernel.

mod dgrams;
mod epoll;
mod forks;
mod listeners;
mod passing;
mod restarts;
mod streams;
mod strict;
mod world;
