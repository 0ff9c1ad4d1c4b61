//! (module documentation follows)

pub mod control;
