//! Check whether a preloaded library can serve a program.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Scripts may name scripts as their interpreter; the kernel follows four.
const INTERPRETERS_MAX: usize = 4;
const SCRIPT_LINE_MAX: usize = 256;
const PROGRAM_HEADERS_MAX: u64 = 256;
const NOTE_LEN_MAX: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Kernels,
    Broken,
}

/// Reason why a program cannot be served.
#[derive(Debug)]
pub struct Unfit {
    kind: Kind,
    sentence: String,
}

impl Unfit {
    fn kernels(sentence: String) -> Unfit {
        let kind = Kind::Kernels;
        Unfit { kind, sentence }
    }

    fn broken(sentence: String) -> Unfit {
        let kind = Kind::Broken;
        Unfit { kind, sentence }
    }

    /// Returns whether the program can run, with its sockets on the kernel. Otherwise it cannot be
    /// started, or its format is unknown.
    #[must_use]
    pub fn is_kernels(&self) -> bool {
        self.kind == Kind::Kernels
    }
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// Refuses programs that cannot work.
///
/// # Errors
/// A sentence, if the file is static, Go, 32-bit, of a foreign machine or set-id, or no program at
/// all.
pub fn check(file: &Path) -> Result<(), Unfit> {
    check_file(file, INTERPRETERS_MAX)
}

fn check_file(file: &Path, interpreters_left: usize) -> Result<(), Unfit> {
    let shown = file.display();
    check_identity(file)?;
    let unreadable =
        |error: std::io::Error| Unfit::broken(format!("{shown} cannot be read: {error}"));
    let opened = File::open(file).map_err(unreadable)?;
    let mut start = Vec::new();
    (&opened)
        .take(SCRIPT_LINE_MAX as u64)
        .read_to_end(&mut start)
        .map_err(unreadable)?;
    if let Some(line) = start.strip_prefix(b"#!") {
        let interpreter = interpreter(line)
            .ok_or_else(|| Unfit::broken(format!("{shown} is a script without an interpreter")))?;
        if interpreters_left == 0 || !interpreter.exists() {
            let interpreter = interpreter.display();
            return Err(Unfit::broken(format!(
                "{shown} needs the interpreter {interpreter}, which was not found"
            )));
        }
        return check_file(&interpreter, interpreters_left - 1);
    }
    if !start.starts_with(b"\x7fELF") {
        return Err(Unfit::broken(format!(
            "{shown} is neither an ELF program nor a script with #!"
        )));
    }
    check_elf(&opened).map_err(|(kind, reason)| {
        let sentence = format!("{shown} {reason}");
        Unfit { kind, sentence }
    })
}

fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let word = line
        .split(|byte| byte.is_ascii_whitespace())
        .find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

/// A program that changes its identity starts with AT_SECURE, and the loader ignores LD_PRELOAD.
fn check_identity(file: &Path) -> Result<(), Unfit> {
    const SET_UID: u32 = 0o4000;
    const SET_GID: u32 = 0o2000;
    let Ok(meta) = std::fs::metadata(file) else {
        return Ok(());
    };
    let becomes_user =
        meta.mode() & SET_UID != 0 && meta.uid() != rustix::process::getuid().as_raw();
    let becomes_group =
        meta.mode() & SET_GID != 0 && meta.gid() != rustix::process::getgid().as_raw();
    if becomes_user || becomes_group {
        let kind = if becomes_user { "user" } else { "group" };
        return Err(Unfit::kernels(format!(
            "{} is a set-{kind}-id program: the system loads no library into it, so its sockets \
             would stay in the kernel",
            file.display()
        )));
    }
    Ok(())
}

/// The end of a sentence that starts with the program's name.
fn check_elf(file: &File) -> Result<(), (Kind, String)> {
    let damaged = || (Kind::Broken, "is a damaged ELF file".to_owned());
    let kernels = |reason: &str| (Kind::Kernels, reason.to_owned());
    let mut header = [0_u8; 64];
    file.read_exact_at(&mut header, 0).map_err(|_| damaged())?;
    if header[4] == 1 {
        return Err(kernels("is a 32-bit program; Slipstack runs 64-bit ones"));
    }
    if header[4] != 2 || header[5] != 1 {
        return Err(damaged());
    }
    const ET_EXEC: u16 = 2;
    const ET_DYN: u16 = 3;
    if !matches!(word16(&header, 16), ET_EXEC | ET_DYN) {
        return Err((Kind::Broken, "is an ELF file but not a program".to_owned()));
    }
    if word16(&header, 18) != native_machine()? {
        return Err(kernels("was built for another kind of processor"));
    }
    let (offset, size, count) = (
        word64(&header, 32),
        word16(&header, 54),
        word16(&header, 56),
    );
    if size < 56 || u64::from(count) > PROGRAM_HEADERS_MAX {
        return Err(damaged());
    }
    let mut has_interpreter = false;
    for index in 0..u64::from(count) {
        let mut entry = [0_u8; 56];
        let at = offset
            .checked_add(index * u64::from(size))
            .ok_or_else(damaged)?;
        file.read_exact_at(&mut entry, at).map_err(|_| damaged())?;
        match u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) {
            3 => has_interpreter = true,
            4 if is_go_note(file, word64(&entry, 8), word64(&entry, 32)) => {
                return Err(kernels(
                    "is a Go program: it calls the kernel without libc, so its sockets cannot be \
                     taken over",
                ));
            }
            _ => {}
        }
    }
    if has_interpreter {
        Ok(())
    } else {
        Err(kernels(
            "is statically linked: no library can be loaded into it, so its sockets would stay in \
             the kernel",
        ))
    }
}

/// Go's linker leaves a note with the owner `Go` in every program.
fn is_go_note(file: &File, offset: u64, len: u64) -> bool {
    let mut notes = vec![0_u8; usize::try_from(len.min(NOTE_LEN_MAX)).unwrap_or(0)];
    if file.read_exact_at(&mut notes, offset).is_err() {
        return false;
    }
    let mut rest = &notes[..];
    while rest.len() >= 16 {
        let padded = |at: usize| {
            let len = u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
            (len as usize).saturating_add(3) & !3
        };
        if rest[..4] == 4_u32.to_le_bytes() && rest[12..16] == *b"Go\0\0" {
            return true;
        }
        let len = 12_usize.saturating_add(padded(0)).saturating_add(padded(4));
        rest = rest.get(len..).unwrap_or_default();
    }
    false
}

fn word16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn native_machine() -> Result<u16, (Kind, String)> {
    let mut header = [0_u8; 20];
    let own = File::open("/proc/self/exe").and_then(|file| file.read_exact_at(&mut header, 0));
    own.map_err(|error| {
        let reason = format!("cannot be checked: /proc/self/exe: {error}");
        (Kind::Broken, reason)
    })?;
    Ok(word16(&header, 18))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(class: u8, machine: u16, headers: &[(u32, &[u8])]) -> Vec<u8> {
        let mut file = vec![0_u8; 64 + 56 * headers.len()];
        file[..4].copy_from_slice(b"\x7fELF");
        file[4] = class;
        file[5] = 1;
        file[16] = 3;
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        file[32] = 64;
        file[54] = 56;
        file[56] = headers.len() as u8;
        for (index, (kind, body)) in headers.iter().enumerate() {
            let at = 64 + 56 * index;
            let end = file.len() as u64;
            file[at..at + 4].copy_from_slice(&kind.to_le_bytes());
            file[at + 8..at + 16].copy_from_slice(&end.to_le_bytes());
            file[at + 32..at + 40].copy_from_slice(&(body.len() as u64).to_le_bytes());
            file.extend_from_slice(body);
        }
        file
    }

    fn verdict(name: &str, bytes: &[u8]) -> String {
        let file =
            std::env::temp_dir().join(format!("slipstack-elf-{}-{name}", std::process::id()));
        std::fs::write(&file, bytes).unwrap();
        let verdict = check_elf(&File::open(&file).unwrap());
        std::fs::remove_file(&file).unwrap();
        verdict.map_or_else(|(_, reason)| reason, |()| "works".into())
    }

    #[test]
    fn static_programs_and_those_of_other_machines_are_distinguished() {
        let native = native_machine().unwrap();
        let go_note = [
            4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, b'G', b'o', 0, 0, 1, 2, 3, 4,
        ];
        assert_eq!(
            verdict("dynamic", &elf(2, native, &[(1, b""), (3, b"ld")])),
            "works"
        );
        assert!(verdict("static", &elf(2, native, &[(1, b"")])).contains("statically linked"));
        assert!(
            verdict("go", &elf(2, native, &[(3, b"ld"), (4, &go_note)])).contains("Go program")
        );
        assert!(verdict("narrow", &elf(1, native, &[])).contains("32-bit"));
        assert!(verdict("foreign", &elf(2, native + 1, &[(3, b"ld")])).contains("processor"));
        assert!(verdict("short", b"\x7fELF\x02\x01").contains("damaged"));
        let mut wild = elf(2, native, &[(3, b"ld")]);
        wild[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(verdict("wild", &wild).contains("damaged"));
    }
}
