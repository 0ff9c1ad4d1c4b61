//! Programs of eBPF that choose a socket of a SO_REUSEPORT group, kept as the program has loaded
//! them: the kernel's copy of their instructions has offsets of its own structures.

use slipstack_channel::{Extended, MapReference, is_supported_map};
use slipstack_mem::{Descriptor, Lock, PrivateFd, raised_copy};

use crate::kernel::Kernel;
use crate::process::Process;

/// Programs that are kept; the oldest one makes room.
const KEPT_MAX: usize = 64;

#[derive(Debug)]
struct Loaded {
    id: u32,
    /// As [`Extended::bytes`]; `None`: something in it is not supported.
    code: Option<Vec<u8>>,
    /// The maps that it refers to, which show the keeper that this process may read them.
    _maps: Vec<PrivateFd>,
}

/// All programs that this process, or the one that it was forked from, has loaded.
#[derive(Debug, Default)]
pub(crate) struct Programs(Lock<Vec<Loaded>>);

impl Programs {
    /// Returns the code of a program; `None` if it is not known, or not supported.
    pub(crate) fn code_of(&self, id: u32) -> Option<Vec<u8>> {
        let all = self.0.lock();
        all.iter().find(|it| it.id == id)?.code.clone()
    }

    /// Locks them over a fork, so that no other thread's lock is copied.
    pub(crate) fn hold(&self) {
        self.0.hold();
    }

    pub(crate) fn release(&self) {
        self.0.release();
    }

    fn keep(&self, loaded: Loaded) {
        let mut all = self.0.lock();
        if all.len() >= KEPT_MAX {
            drop(all.remove(0));
        }
        all.push(loaded);
    }
}

impl Process {
    /// Keeps a program of the kind SK_REUSEPORT that has been loaded under this descriptor.
    /// `descriptor_at` returns the elements of the array of descriptors beside it.
    pub fn note_program(
        &self,
        fd: i32,
        instructions: &[u8],
        descriptor_at: impl Fn(u32) -> Option<i32>,
    ) {
        let Some([_, id, ..]) = self.kernel.bpf_info(fd) else {
            return;
        };
        let (mut maps, mut are_known) = (Vec::new(), true);
        let code = Extended::bytes(instructions, |reference| {
            let number = match reference {
                MapReference::Descriptor(number) => Some(number),
                MapReference::Index(index) => descriptor_at(index),
            };
            let found = number.and_then(|number| map_behind(&*self.kernel, number));
            are_known &= found.is_some();
            let (id, copy) = found?;
            maps.push(copy);
            Some(id)
        });
        let is_supported = are_known && Extended::parse(&code).is_some();
        self.programs.keep(Loaded {
            id,
            code: is_supported.then_some(code),
            _maps: if is_supported { maps } else { Vec::new() },
        });
    }
}

/// Returns the id of a map that a program may refer to, and a descriptor of it that stays.
fn map_behind(kernel: &dyn Kernel, number: i32) -> Option<(u32, PrivateFd)> {
    let [kind, id, _, value_len] = kernel.bpf_info(number)?;
    if !is_supported_map(kind, value_len) {
        return None;
    }
    let fd = Descriptor::new(number)?;
    Some((id, raised_copy(fd.as_fd()).ok()?))
}
