//! `dlopen`: a library that is to look for symbols among its own libraries first (RTLD_DEEPBIND, as
//! PHP loads its extensions) would find libc before us. It is loaded without that.

pub mod abi;
pub mod raw;
