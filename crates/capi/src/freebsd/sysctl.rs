//! The few sysctl values that programs ask for by FreeBSD's numbers or, in two steps, by name.

use slipstack_posix::Errno;

use crate::descriptors::abi::{ff_getmaxfd, page_size};

/// CTL_SYSCTL and its CTL_SYSCTL_NAME2OID.
const NAME_TO_NUMBERS: [i32; 2] = [0, 3];

/// Number and name of a value, and what it is.
fn rows() -> [(&'static [i32], &'static str, i32); 4] {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    [
        (&[1, 7], "kern.maxfiles", ff_getmaxfd()),
        (&[1, 27], "kern.maxfilesperproc", ff_getmaxfd()),
        (&[6, 3], "hw.ncpu", i32::try_from(cores).unwrap_or(1)),
        (&[6, 7], "hw.pagesize", page_size()),
    ]
}

/// What is asked for, as bytes; `input` is the name where numbers are asked for.
///
/// # Errors
/// ENOENT: there is no such value. EPERM: it is not to be written.
pub fn read(numbers: &[i32], input: &[u8]) -> Result<Vec<u8>, Errno> {
    if numbers == NAME_TO_NUMBERS {
        let name = input.split(|byte| *byte == 0).next().unwrap_or(input);
        let rows = rows();
        let row = rows.iter().find(|(_, other, _)| other.as_bytes() == name);
        let (numbers, ..) = row.ok_or(Errno::ENOENT)?;
        return Ok(numbers
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect());
    }
    let rows = rows();
    let row = rows.iter().find(|(other, ..)| *other == numbers);
    let (.., value) = row.ok_or(Errno::ENOENT)?;
    if !input.is_empty() {
        return Err(Errno::EPERM);
    }
    Ok(value.to_ne_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_numbers_and_numbers_a_value() {
        let numbers = read(&[0, 3], b"hw.pagesize\0").unwrap();
        assert_eq!(numbers, [6i32, 7].map(i32::to_ne_bytes).concat());
        assert_eq!(read(&[6, 7], b""), Ok(page_size().to_ne_bytes().to_vec()));
        assert_eq!(read(&[6, 7], b"x"), Err(Errno::EPERM));
        assert_eq!(read(&[9, 9], b""), Err(Errno::ENOENT));
    }
}
