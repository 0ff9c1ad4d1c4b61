//! Copying replacements for views that the models do not use.

use std::marker::PhantomData;

#[derive(Clone, Copy, Debug)]
pub struct RawSlice<'a>(PhantomData<&'a [u8]>);

impl RawSlice<'_> {
    pub const EMPTY: RawSlice<'static> = RawSlice(PhantomData);
}

#[derive(Clone, Copy, Debug)]
pub struct RawSpace<'a>(PhantomData<&'a [u8]>);

impl RawSpace<'_> {
    pub const EMPTY: RawSpace<'static> = RawSpace(PhantomData);
}
