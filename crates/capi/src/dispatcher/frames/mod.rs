//! Functions that inspect received frames, frames that the program sends, and traffic counts.

mod abi;
