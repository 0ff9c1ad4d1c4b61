//! Functions that see frames, frames that the program sends, and how many there were.

mod abi;
