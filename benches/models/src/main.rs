//! Models of the rings and of the ownership word: loom runs each in every order that the memory
//! model allows, with at most two preemptions.
//!
//!     make models

// A test build has nothing of the rings: their tests need real regions and run in `crates/mem`.
#[cfg(not(test))]
mod models;

#[cfg(not(test))]
fn main() -> std::process::ExitCode {
    models::run()
}
