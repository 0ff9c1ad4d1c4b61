//! Tables of entries with stable indices and generations.

use alloc::vec::Vec;

use super::flow::INDEX_MAX;

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Entries are named by index; a generation distinguishes successive users of one index.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    limit: u32,
}

impl<T> Slab<T> {
    /// Bytes of an entry.
    pub const ENTRY_BYTES: usize = size_of::<Slot<T>>();

    /// At most `limit` entries.
    pub fn new(limit: u32) -> Slab<T> {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
            limit: limit.min(INDEX_MAX),
        }
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Entries that have been made, those that are free now included.
    pub fn made(&self) -> usize {
        self.slots.len()
    }

    pub fn is_full(&self) -> bool {
        self.len() >= self.limit as usize
    }

    /// Index and generation that the next insertion gets.
    pub fn next_id(&self) -> Option<(u32, u32)> {
        if self.is_full() {
            return None;
        }
        Some(match self.free.last() {
            Some(&index) => (index, self.slots[index as usize].generation),
            None => (self.slots.len() as u32, 1),
        })
    }

    /// `None`: full.
    #[inline]
    pub fn insert(&mut self, value: T) -> Option<(u32, u32)> {
        self.insert_with(|_, _| value)
    }

    /// Makes a value in its place from its index and generation, which it gives; `None`: full.
    #[inline]
    pub fn insert_with(&mut self, make: impl FnOnce(u32, u32) -> T) -> Option<(u32, u32)> {
        let (index, generation) = self.next_id()?;
        if self.free.pop().is_none() {
            self.slots.push(Slot {
                generation,
                value: None,
            });
        }
        // One place where a value is made, so that it is made where it stays. It was vacant.
        let value = &mut self.slots[index as usize].value;
        value.get_or_insert_with(|| make(index, generation));
        Some((index, generation))
    }

    /// All entries with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let values = self.slots.iter().enumerate();
        values.filter_map(|(index, slot)| Some((index as u32, slot.value.as_ref()?)))
    }

    /// Drops an entry where it is.
    #[inline]
    pub fn clear(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize)
            && slot.value.is_some()
        {
            slot.value = None;
            slot.generation = next_generation(slot.generation);
            self.free.push(index);
        }
    }

    #[inline]
    pub fn at(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// Returns the generation of this index's present entry.
    pub fn generation(&self, index: u32) -> Option<u32> {
        let slot = self.slots.get(index as usize)?;
        slot.value.is_some().then_some(slot.generation)
    }

    #[inline]
    pub fn find(&self, index: u32, generation: u32) -> Option<&T> {
        let slot = self.slots.get(index as usize)?;
        if slot.generation == generation {
            slot.value.as_ref()
        } else {
            None
        }
    }

    #[inline]
    pub fn find_mut(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation == generation {
            slot.value.as_mut()
        } else {
            None
        }
    }

    /// Returns the indices of the selected entries, by a scan of all.
    pub fn indices(&self, is_meant: impl Fn(&T) -> bool) -> Vec<u32> {
        let slots = self.slots.iter().zip(0u32..);
        slots
            .filter(|(slot, _)| slot.value.as_ref().is_some_and(&is_meant))
            .map(|(_, index)| index)
            .collect()
    }

    pub fn remove(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take()?;
        slot.generation = next_generation(slot.generation);
        self.free.push(index);
        Some(value)
    }
}

/// Generation 0 names nothing.
#[inline]
fn next_generation(generation: u32) -> u32 {
    generation.wrapping_add(1).max(1)
}
