//! `dlopen`: a library that is to look for symbols among its own libraries first (RTLD_DEEPBIND,
//! used by PHP for extensions) would find libc before us. It is loaded without that flag.

pub mod abi;
pub mod raw;
