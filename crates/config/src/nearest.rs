//! Lookup of the known name that is most like an unknown one.

/// Returns the candidate with the fewest letters to change, or `None` without candidates.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates.min_by_key(|candidate| strsim::damerau_levenshtein(name, candidate))
}
