//! (module documentation follows)
