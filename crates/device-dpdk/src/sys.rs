//! Declarations of the C part, by its header `shim.h`.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::os::fd::{BorrowedFd, RawFd};

const NAME_MAX: usize = 64;
pub const BURST: usize = 64;
/// Pieces of one frame at most.
pub const PIECES_MAX: usize = 40;
const PORTS_MAX: usize = 32;
const KEY_MAX: usize = 52;
const TABLE_MAX: usize = 512;

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
    /// In each direction; before the start, how many the port may have.
    pub queues: u16,
    pub has_rss: u8,
    pub strips_tags: u8,
}

/// `struct shim_rss`.
#[repr(C)]
struct RawRss {
    key_len: u16,
    table_len: u16,
    key: [u8; KEY_MAX],
    table: [u16; TABLE_MAX],
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
        queues: 0,
        has_rss: 0,
        strips_tags: 0,
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
    /// As many as the port has, up to this number.
    pub queues: u16,
    pub symmetric: u8,
    pub strip_tags: u8,
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
    fn shim_threads() -> c_int;
    fn shim_rss(port: u16, out: *mut RawRss) -> c_int;
    fn shim_launch(
        run: unsafe extern "C" fn(*mut c_void) -> c_int,
        arguments: *mut *mut c_void,
        count: c_int,
    ) -> c_int;
    fn shim_join();
    fn shim_receive(port: u16, queue: u16, out: *mut RawFrame, max: c_int) -> c_int;
    fn shim_copy(frame: *const RawFrame, into: *mut c_void, len: u32) -> u32;
    fn shim_free(frames: *mut RawFrame, count: c_int);
    fn shim_send(
        port: u16,
        queue: u16,
        pieces: *const Piece,
        count: c_int,
        offload: *const Offload,
    ) -> c_int;
    fn shim_flush(port: u16, queue: u16) -> c_int;
    fn shim_give_up(queue: u16) -> c_int;
    fn shim_interrupt_fd(port: u16, queue: u16) -> c_int;
    fn shim_arm(port: u16, queue: u16, on: c_int) -> c_int;
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
    /// Initialises EAL with these arguments. To be called once.
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

    /// Returns how many threads DPDK has, this one among them.
    pub fn threads(&self) -> usize {
        // SAFETY: it is initialised.
        usize::try_from(unsafe { shim_threads() }).unwrap_or(1)
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
        let port = Port {
            number,
            queues: info.queues,
            _eal: self,
        };
        Ok((port, info))
    }
}

/// The port that runs.
pub struct Port {
    number: u16,
    /// Number of queues that were not taken yet.
    queues: u16,
    _eal: Eal,
}

/// One queue of it in each direction. One thread has it.
pub struct Queue {
    port: u16,
    number: u16,
}

/// The work of one of DPDK's threads.
pub type Work = Box<dyn FnOnce() + Send>;

unsafe extern "C" fn run(argument: *mut c_void) -> c_int {
    // SAFETY: the box that `Port::launch` has given away, once for each thread.
    let work = unsafe { Box::from_raw(argument.cast::<Work>()) };
    work();
    0
}

/// Frames that were received, given back when this is dropped.
pub struct Burst {
    frames: [RawFrame; BURST],
    count: usize,
}

/// A received frame.
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

impl Queue {
    #[inline]
    pub fn receive(&mut self) -> Burst {
        let mut frames = [RawFrame::EMPTY; BURST];
        let most = BURST as c_int;
        // SAFETY: there is room for so many; this thread alone works at the queue.
        let count = unsafe { shim_receive(self.port, self.number, frames.as_mut_ptr(), most) };
        Burst {
            frames,
            count: usize::try_from(count).unwrap_or(0),
        }
    }

    /// Copies a frame for the next flush.
    #[inline]
    pub fn send(&mut self, pieces: &[Piece], offload: &Offload) -> Sent {
        let (first, count) = (pieces.as_ptr(), pieces.len() as c_int);
        // SAFETY: that many pieces, each of mapped bytes; bytes that others change meanwhile are
        // copied before they are read.
        match unsafe { shim_send(self.port, self.number, first, count, offload) } {
            1.. => Sent::Taken,
            0 => Sent::NoRoom,
            _ => Sent::Refused,
        }
    }

    /// Returns how many frames still wait.
    #[inline]
    pub fn flush(&mut self) -> usize {
        // SAFETY: the port runs.
        usize::try_from(unsafe { shim_flush(self.port, self.number) }).unwrap_or(0)
    }

    /// Drops waiting frames.
    pub fn give_up(&mut self) {
        // SAFETY: the port runs.
        unsafe { shim_give_up(self.number) };
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    /// Readable when frames come while interrupts are on.
    pub fn interrupt_fd(&self) -> Option<BorrowedFd<'static>> {
        // SAFETY: the port runs.
        let fd: RawFd = unsafe { shim_interrupt_fd(self.port, self.number) };
        // SAFETY: DPDK's, which stays open while the port runs, that is until the process ends.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Turns interrupts on or off. Returns whether that was possible.
    pub fn arm(&mut self, is_on: bool) -> bool {
        // SAFETY: the port runs.
        unsafe { shim_arm(self.port, self.number, c_int::from(is_on)) == 0 }
    }

    /// Returns how many frames the whole port has lost for want of room.
    pub fn missed(&self) -> u64 {
        // SAFETY: the port runs.
        unsafe { shim_missed(self.port) }
    }
}

impl Port {
    /// Returns the queues; a second call has none left.
    pub fn take_queues(&mut self) -> Vec<Queue> {
        let port = self.number;
        let queue = |number| Queue { port, number };
        (0..std::mem::take(&mut self.queues)).map(queue).collect()
    }

    /// Has each work done by a thread of DPDK's, of which there are as many beside this one.
    ///
    /// # Errors
    /// DPDK's reason, in few words.
    pub fn launch(&self, works: Vec<Work>) -> Result<(), String> {
        let boxes = works.into_iter().map(|work| Box::into_raw(Box::new(work)));
        let mut arguments: Vec<*mut c_void> = boxes.map(<*mut Work>::cast).collect();
        let count = arguments.len() as c_int;
        // SAFETY: so many boxes, each of which goes to one thread.
        checked(unsafe { shim_launch(run, arguments.as_mut_ptr(), count) }).map(drop)
    }

    /// Waits until the threads have done their work.
    pub fn join(&self) {
        // SAFETY: it takes no argument.
        unsafe { shim_join() };
    }

    /// Returns the key and the indirection table of the port's hash, if it tells them.
    pub fn rss(&self) -> Option<(Vec<u8>, Vec<u16>)> {
        let mut rss = RawRss {
            key_len: 0,
            table_len: 0,
            key: [0; KEY_MAX],
            table: [0; TABLE_MAX],
        };
        // SAFETY: of the layout that the header has.
        checked(unsafe { shim_rss(self.number, &raw mut rss) }).ok()?;
        let key = rss.key.get(..usize::from(rss.key_len))?;
        let table = rss.table.get(..usize::from(rss.table_len))?;
        Some((key.to_vec(), table.to_vec()))
    }

    pub fn is_up(&self) -> bool {
        // SAFETY: the port runs.
        unsafe { shim_is_up(self.number) != 0 }
    }

    /// Stops the port and leaves nothing of DPDK's behind.
    pub fn stop(self) {
        // SAFETY: nothing of the port's is used afterwards.
        unsafe { shim_stop(self.number) };
    }
}
