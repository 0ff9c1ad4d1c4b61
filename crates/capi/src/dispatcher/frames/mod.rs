//! Frames that the program sends, and how many there were.

mod abi;
