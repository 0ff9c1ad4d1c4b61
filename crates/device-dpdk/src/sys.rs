//! Declarations of the C part, by its header `shim.h`.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::os::fd::{BorrowedFd, RawFd};

const NAME_MAX: usize = 64;
pub const BURST: usize = 64;
/// Pieces of one frame at most.
pub const PIECES_MAX: usize = 40;
const PORTS_MAX: usize = 32;

/// `struct shim_port`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PortInfo {
    name: [c_char; NAME_MAX],
    driver: [c_char; NAME_MAX],
    pub mac: [u8; 6],
    pub mtu: u16,
    pub number: u16,
    pub has_checksum: u8,
    pub has_tso: u8,
    pub has_interrupts: u8,
    pub is_bond: u8,
    pub is_bonded: u8,
}

impl PortInfo {
    const EMPTY: PortInfo = PortInfo {
        name: [0; NAME_MAX],
        driver: [0; NAME_MAX],
        mac: [0; 6],
        mtu: 0,
        number: 0,
        has_checksum: 0,
        has_tso: 0,
        has_interrupts: 0,
        is_bond: 0,
        is_bonded: 0,
    };

    pub fn name(&self) -> String {
        text(&self.name)
    }

    pub fn driver(&self) -> String {
        text(&self.driver)
    }
}

fn text(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|byte| byte.cast_unsigned()).collect();
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// `struct shim_setup`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PortSetup {
    pub mac: [u8; 6],
    pub mtu: u16,
    pub descriptors: u16,
    pub checksum: u8,
    pub tso: u8,
    pub promiscuous: u8,
    pub interrupts: u8,
}

/// `struct shim_piece`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Piece {
    pub data: *const u8,
    pub len: u32,
}

/// `struct shim_frame`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawFrame {
    whole: *const u8,
    mbuf: *mut c_void,
    len: u32,
    vlan: u16,
    checked: u8,
}

impl RawFrame {
    const EMPTY: RawFrame = RawFrame {
        whole: core::ptr::null(),
        mbuf: core::ptr::null_mut(),
        len: 0,
        vlan: 0,
        checked: 0,
    };
}

/// `struct shim_offload`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    pub vlan: u16,
    pub transport_at: u16,
    pub checksum_at: u16,
    pub mss: u16,
}

unsafe extern "C" {
    fn shim_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    fn shim_explain(error: c_int) -> *const c_char;
    fn shim_ports(out: *mut PortInfo, max: c_int) -> c_int;
    fn shim_start(port: u16, setup: *const PortSetup, out: *mut PortInfo) -> c_int;
    fn shim_is_up(port: u16) -> c_int;
    fn shim_receive(port: u16, out: *mut RawFrame, max: c_int) -> c_int;
    fn shim_copy(frame: *const RawFrame, into: *mut c_void, len: u32) -> u32;
    fn shim_free(frames: *mut RawFrame, count: c_int);
    fn shim_send(port: u16, pieces: *const Piece, count: c_int, offload: *const Offload) -> c_int;
    fn shim_flush(port: u16) -> c_int;
    fn shim_give_up() -> c_int;
    fn shim_interrupt_fd(port: u16) -> c_int;
    fn shim_arm(port: u16, on: c_int) -> c_int;
    fn shim_missed(port: u16) -> u64;
    fn shim_stop(port: u16);
}

/// DPDK's environment layer, initialised: there is one in a process.
pub struct Eal(());

/// A result of the part in C.
fn checked(result: c_int) -> Result<c_int, String> {
    if result >= 0 {
        return Ok(result);
    }
    // SAFETY: it takes any number.
    let words = unsafe { shim_explain(-result) };
    if words.is_null() {
        return Err(format!("error {}", -result));
    }
    // SAFETY: a text of DPDK's that stays until the next call of this thread.
    let words = unsafe { CStr::from_ptr(words) };
    Err(words.to_string_lossy().into_owned())
}

impl Eal {
    /// Initialises it with these words. To be called once.
    ///
    /// # Errors
    /// DPDK's reason, in few words.
    pub fn init(words: &[String]) -> Result<Eal, String> {
        let words: Vec<CString> = words
            .iter()
            .map(|word| CString::new(word.as_str()))
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let mut pointers: Vec<*mut c_char> = words
            .iter()
            .map(|word| word.as_ptr().cast_mut())
            .chain([core::ptr::null_mut()])
            .collect();
        let count = words.len() as c_int;
        // SAFETY: so many texts, and the null that ends them; `getopt` reorders the pointers alone.
        checked(unsafe { shim_init(count, pointers.as_mut_ptr()) })?;
        // DPDK may keep pointers to its arguments.
        words.into_iter().for_each(|word| {
            let _ = word.into_raw();
        });
        Ok(Eal(()))
    }

    pub fn ports(&self) -> Vec<PortInfo> {
        let mut ports = vec![PortInfo::EMPTY; PORTS_MAX];
        // SAFETY: there is room for so many.
        let count = unsafe { shim_ports(ports.as_mut_ptr(), PORTS_MAX as c_int) };
        ports.truncate(usize::try_from(count).unwrap_or(0));
        ports
    }

    /// Starts a port.
    ///
    /// # Errors
    /// DPDK's reason, in few words.
    pub fn start(self, number: u16, setup: &PortSetup) -> Result<(Port, PortInfo), String> {
        let mut info = PortInfo::EMPTY;
        // SAFETY: both are of the layout that the header has.
        checked(unsafe { shim_start(number, setup, &raw mut info) })?;
        Ok((Port { number, _eal: self }, info))
    }
}

/// The port that runs. One thread has it.
pub struct Port {
    number: u16,
    _eal: Eal,
}

/// Frames that were received, given back when this is dropped.
pub struct Burst {
    frames: [RawFrame; BURST],
    count: usize,
}

/// One of them.
pub struct Frame<'a>(&'a RawFrame);

impl Burst {
    #[inline]
    pub fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        self.frames[..self.count].iter().map(Frame)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        // SAFETY: so many frames of the port's, each given back once.
        unsafe { shim_free(self.frames.as_mut_ptr(), self.count as c_int) };
    }
}

impl<'a> Frame<'a> {
    /// Returns the bytes, in `buffer` if they are in several pieces.
    #[inline]
    pub fn bytes<'b>(&self, buffer: &'b mut [u8]) -> &'b [u8]
    where
        'a: 'b,
    {
        if self.0.whole.is_null() {
            let len = buffer.len().min(self.0.len as usize);
            // SAFETY: the buffer has room for `len` bytes.
            let len = unsafe { shim_copy(self.0, buffer.as_mut_ptr().cast(), len as u32) };
            return &buffer[..len as usize];
        }
        // SAFETY: so many bytes in memory of DPDK's that is this burst's until it is dropped.
        unsafe { core::slice::from_raw_parts(self.0.whole, self.0.len as usize) }
    }

    /// Returns the VLAN of the removed tag; 0 = none.
    pub fn vlan(&self) -> u16 {
        self.0.vlan
    }

    /// The port found the checksums right.
    pub fn is_checked(&self) -> bool {
        self.0.checked != 0
    }
}

/// The result of sending a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Taken,
    NoRoom,
    Refused,
}

impl Port {
    #[inline]
    pub fn receive(&mut self) -> Burst {
        let mut frames = [RawFrame::EMPTY; BURST];
        // SAFETY: there is room for so many.
        let count = unsafe { shim_receive(self.number, frames.as_mut_ptr(), BURST as c_int) };
        Burst {
            frames,
            count: usize::try_from(count).unwrap_or(0),
        }
    }

    /// Copies a frame for the next flush.
    #[inline]
    pub fn send(&mut self, pieces: &[Piece], offload: &Offload) -> Sent {
        let count = pieces.len() as c_int;
        // SAFETY: that many pieces, each of mapped bytes; bytes that others change meanwhile are
        // copied before they are read.
        match unsafe { shim_send(self.number, pieces.as_ptr(), count, offload) } {
            1.. => Sent::Taken,
            0 => Sent::NoRoom,
            _ => Sent::Refused,
        }
    }

    /// Returns how many frames still wait.
    #[inline]
    pub fn flush(&mut self) -> usize {
        // SAFETY: the port runs.
        usize::try_from(unsafe { shim_flush(self.number) }).unwrap_or(0)
    }

    /// Drops waiting frames.
    pub fn give_up(&mut self) {
        // SAFETY: the port runs.
        unsafe { shim_give_up() };
    }

    pub fn is_up(&self) -> bool {
        // SAFETY: the port runs.
        unsafe { shim_is_up(self.number) != 0 }
    }

    /// Readable when frames come while interrupts are on.
    pub fn interrupt_fd(&self) -> Option<BorrowedFd<'static>> {
        // SAFETY: the port runs.
        let fd: RawFd = unsafe { shim_interrupt_fd(self.number) };
        // SAFETY: DPDK's, which stays open while the port runs, that is until the process ends.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Turns interrupts on or off. Returns whether that was possible.
    pub fn arm(&mut self, is_on: bool) -> bool {
        // SAFETY: the port runs.
        unsafe { shim_arm(self.number, c_int::from(is_on)) == 0 }
    }

    pub fn missed(&self) -> u64 {
        // SAFETY: the port runs.
        unsafe { shim_missed(self.number) }
    }

    /// Stops the port and leaves nothing of DPDK's behind.
    pub fn stop(self) {
        // SAFETY: nothing of the port's is used afterwards.
        unsafe { shim_stop(self.number) };
    }
}
