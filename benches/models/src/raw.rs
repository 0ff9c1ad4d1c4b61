//! Replacements for views of shared memory: a slice has private bytes, and no model uses a space.

use std::marker::PhantomData;

#[derive(Clone, Copy, Debug)]
pub struct RawSlice<'a>(&'a [u8]);

impl<'a> RawSlice<'a> {
    pub const EMPTY: RawSlice<'static> = RawSlice(&[]);

    pub fn of(bytes: &'a [u8]) -> RawSlice<'a> {
        RawSlice(bytes)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The part `[start, start + len)`, clipped to this slice.
    pub fn sub(&self, start: usize, len: usize) -> RawSlice<'a> {
        let rest = self.0.get(start..).unwrap_or_default();
        RawSlice(rest.get(..len).unwrap_or(rest))
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }
}

#[derive(Clone, Copy, Debug)]
pub struct RawSpace<'a>(PhantomData<&'a [u8]>);

impl RawSpace<'_> {
    pub const EMPTY: RawSpace<'static> = RawSpace(PhantomData);
}
