//! Values that programs set by an int.

/// A value that an int sets.
pub(crate) trait FromInt: Sized {
    /// Returns the value; `None` if the int sets none.
    fn from_int(int: i32) -> Option<Self>;
}

impl FromInt for bool {
    fn from_int(int: i32) -> Option<bool> {
        Some(int != 0)
    }
}

impl FromInt for u32 {
    fn from_int(int: i32) -> Option<u32> {
        int.try_into().ok()
    }
}

/// 0 is none.
impl<T: TryFrom<i32> + Default + PartialEq> FromInt for Option<T> {
    fn from_int(int: i32) -> Option<Option<T>> {
        let number = T::try_from(int).ok()?;
        Some((number != T::default()).then_some(number))
    }
}
