//! A box that is allocated at its first use, for state that few sockets have.

/// A value that takes a pointer's room until it is made.
#[derive(Debug, Default)]
pub struct LazyBox<T>(Option<Box<T>>);

impl<T: Default> LazyBox<T> {
    /// Before anything has been put in.
    pub const NONE: LazyBox<T> = LazyBox(None);

    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// The value, made if there is none yet.
    #[inline]
    pub fn make(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }

    /// Returns the value, or an empty one, and has none from here on.
    pub fn take(&mut self) -> T {
        self.0.take().map_or_else(T::default, |it| *it)
    }
}
