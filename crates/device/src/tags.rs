//! The VLANs of a device's port, with their tags.

use slipstack_mem::RawSpace;
use slipstack_terms::{LinkTags, VlanTag};
use slipstack_wire::ethernet::EtherType;
use slipstack_wire::{RxMeta, TxOffload};

use crate::device::{Rest, Sink};

/// Headers of a frame at most: Ethernet, IP and TCP with all options.
pub(crate) const HEADER_MAX: usize = 256;
/// Bytes of the Ethernet addresses, before the type.
pub(crate) const ADDRESSES: usize = 12;
pub(crate) const TAG_LEN: usize = 4;
/// The type of a frame, and the type of service of a packet of IPv4 behind it.
const TYPE: usize = ADDRESSES;
const TOS: usize = 15;
/// The VLAN's number in a tag.
const VLAN_MASK: u16 = 0xfff;

/// A frame's headers with its tags.
pub(crate) struct Tagged {
    bytes: [u8; HEADER_MAX],
    len: usize,
}

impl Tagged {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The kind and number of a tag: the VLAN, and whether the tag is a provider's.
pub(crate) type Kind = (u16, bool);

/// Returns what a frame's first tag names.
#[inline]
pub(crate) fn parse(frame: &[u8]) -> Option<Kind> {
    parse_at(frame, TYPE)
}

/// Returns what the tag behind a frame's first tag names.
pub(crate) fn parse_second(frame: &[u8]) -> Option<Kind> {
    parse_at(frame, TYPE + TAG_LEN)
}

#[inline]
fn parse_at(frame: &[u8], at: usize) -> Option<Kind> {
    let tag: &[u8; TAG_LEN] = frame.get(at..)?.first_chunk()?;
    let [a, b, c, d] = *tag;
    let is_provider = match EtherType(u16::from_be_bytes([a, b])) {
        EtherType::TAGGED => false,
        EtherType::PROVIDER_TAGGED => true,
        _ => return None,
    };
    Some((u16::from_be_bytes([c, d]) & VLAN_MASK, is_provider))
}

/// Takes so many bytes of tags out of a frame; the rest moves.
#[cold]
pub(crate) fn take_out(frame: &mut [u8], tags: usize) -> &mut [u8] {
    if frame.len() < ADDRESSES + tags {
        return frame;
    }
    frame.copy_within(..ADDRESSES, tags);
    &mut frame[tags..]
}

/// Puts a tag that the kernel has taken out back between the addresses and the type of a frame of
/// this length; returns the length with it. A frame without room for a tag is left as it is.
pub(crate) fn restore(buffer: &mut [u8], len: usize, tag: Option<[u8; TAG_LEN]>) -> usize {
    let Some(tag) = tag.filter(|_| len >= ADDRESSES) else {
        return len;
    };
    let held = len.min(buffer.len().saturating_sub(TAG_LEN));
    if held < ADDRESSES {
        return len;
    }
    buffer.copy_within(ADDRESSES..held, ADDRESSES + TAG_LEN);
    buffer[ADDRESSES..ADDRESSES + TAG_LEN].copy_from_slice(&tag);
    len + TAG_LEN
}

#[derive(Debug, Default)]
pub(crate) struct Tags {
    /// The VLAN that the device's own link, number 0, is in; 0 = its frames have no tag.
    own: u16,
    /// In order of the links' numbers.
    all: Vec<LinkTags>,
    /// The link of the frames with these tags, in order of the tags.
    links: Vec<((Kind, Option<Kind>), u16)>,
    has_inner: bool,
}

impl Tags {
    pub fn new(own: u16) -> Tags {
        Tags {
            own,
            ..Tags::default()
        }
    }

    pub fn set(&mut self, links: &[LinkTags]) {
        let kind = |tag: VlanTag| (tag.id, tag.is_provider);
        self.all = links.to_vec();
        self.all.sort_unstable_by_key(|tags| tags.link);
        // The own link of a further port has no tag.
        let links = links.iter().filter(|it| it.outer.id != 0);
        let links = links.map(|it| ((kind(it.outer), it.inner.map(kind)), it.link));
        self.links = links.collect();
        self.links.sort_unstable();
        self.has_inner = self.all.iter().any(|tags| tags.inner.is_some());
    }

    /// Returns the link whose frames have such a tag alone.
    #[inline]
    pub fn link_of(&self, outer: Kind) -> Option<u16> {
        self.find_link((outer, None))
    }

    /// Returns the link whose frames have these two tags.
    #[inline]
    pub fn link_within(&self, outer: Kind, inner: impl FnOnce() -> Option<Kind>) -> Option<u16> {
        match self.has_inner {
            true => self.find_link((outer, Some(inner()?))),
            false => None,
        }
    }

    /// Returns the link of a frame that has all of its tags, and how many bytes these are; `None`
    /// if it is of a VLAN that is not wanted.
    #[inline]
    pub fn link_of_frame(&self, frame: &[u8]) -> Option<(u16, usize)> {
        match parse(frame) {
            None => (self.own == 0).then_some((0, 0)),
            Some(outer) => self.link_of_tagged(frame, outer),
        }
    }

    #[cold]
    fn link_of_tagged(&self, frame: &[u8], outer: Kind) -> Option<(u16, usize)> {
        if let Some(link) = self.link_within(outer, || parse_second(frame)) {
            return Some((link, 2 * TAG_LEN));
        }
        // Number 0 is no VLAN: such a tag has a priority alone (IEEE 802.1Q 9.6).
        let is_own = outer == (self.own, false);
        let link = if is_own { Some(0) } else { self.link_of(outer) };
        link.map(|link| (link, TAG_LEN))
    }

    fn find_link(&self, tags: (Kind, Option<Kind>)) -> Option<u16> {
        let found = self.links.binary_search_by_key(&tags, |(tags, _)| *tags);
        found.ok().map(|at| self.links[at].1)
    }

    fn find(&self, link: u16) -> LinkTags {
        let found = self.all.binary_search_by_key(&link, |tags| tags.link);
        // A frame that was made before its VLAN went has its number.
        let id = if link == 0 { self.own } else { link };
        let other = LinkTags::single(link, VlanTag::plain(id));
        found.map_or(other, |at| self.all[at])
    }

    /// The EtherType of a tag and its control information, for a frame with this header.
    fn words(tag: VlanTag, class: u8, header: &[u8]) -> (u16, u16) {
        let ipv4 = EtherType::IPV4.0.to_be_bytes();
        let is_ipv4 = header.get(TYPE..TYPE + 2) == Some(&ipv4);
        let tos = header.get(TOS).filter(|_| is_ipv4);
        (
            tag.ethertype(),
            tag.control(class, tos.copied().unwrap_or(0)),
        )
    }

    /// The control information of the outer tag of a frame with this header.
    pub fn control(&self, offload: &TxOffload, header: &[u8]) -> u16 {
        Self::words(self.find(offload.link).outer, offload.class, header).1
    }

    /// Puts the tags of a link between the addresses and the type (IEEE 802.1Q 9), and moves what
    /// is left to the device accordingly. `None` if the headers are too long or too short.
    pub fn insert(&self, header: &[u8], offload: &TxOffload) -> Option<(Tagged, TxOffload)> {
        let tags = self.find(offload.link);
        let count = 1 + usize::from(tags.inner.is_some());
        let tag_len = count * TAG_LEN;
        let len = header.len() + tag_len;
        let (addresses, rest) = header.split_at_checked(ADDRESSES)?;
        if len > HEADER_MAX {
            return None;
        }
        let mut bytes = [0; HEADER_MAX];
        bytes[..ADDRESSES].copy_from_slice(addresses);
        let places = bytes[ADDRESSES..].chunks_exact_mut(TAG_LEN);
        for (place, tag) in places.zip([Some(tags.outer), tags.inner].into_iter().flatten()) {
            let (kind, control) = Self::words(tag, offload.class, header);
            let ([a, b], [c, d]) = (kind.to_be_bytes(), control.to_be_bytes());
            place.copy_from_slice(&[a, b, c, d]);
        }
        bytes[ADDRESSES + tag_len..len].copy_from_slice(rest);
        let tag_len = tag_len as u16;
        let offload = TxOffload {
            link: offload.link,
            class: offload.class,
            checksum: offload.checksum.map(|mut partial| {
                partial.start += tag_len;
                partial
            }),
            gso: offload.gso.map(|mut gso| {
                gso.header_len += tag_len;
                gso
            }),
        };
        Some((Tagged { bytes, len }, offload))
    }
}

/// Hands frames on without the tag that is in their bytes.
pub(crate) struct Untagging<'a> {
    pub sink: &'a mut dyn Sink,
    /// For the frame without it.
    pub buffer: &'a mut Vec<u8>,
}

impl Untagging<'_> {
    fn untag(&mut self, frame: &[u8]) {
        self.buffer.clear();
        self.buffer.extend_from_slice(&frame[..ADDRESSES]);
        self.buffer.extend_from_slice(&frame[ADDRESSES + TAG_LEN..]);
    }
}

impl Sink for Untagging<'_> {
    fn frame(&mut self, frame: &[u8], meta: RxMeta) {
        self.untag(frame);
        self.sink.frame(self.buffer, meta);
    }

    fn large(&mut self, beginning: &[u8], meta: RxMeta, rest: &mut dyn Rest) {
        self.untag(beginning);
        self.sink.large(self.buffer, meta, &mut Behind(rest));
    }

    fn clock_ns(&self) -> Option<u64> {
        self.sink.clock_ns()
    }
}

/// The rest of a large frame with a tag, as that of the frame without it.
struct Behind<'a>(&'a mut dyn Rest);

impl Rest for Behind<'_> {
    fn frame_len(&self) -> usize {
        self.0.frame_len() - TAG_LEN
    }

    fn fetch(&mut self, from: usize, into: [RawSpace<'_>; 2]) -> bool {
        // A sink reads the beginning first, and the addresses are in it.
        from >= ADDRESSES && self.0.fetch(from + TAG_LEN, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_tagged_as_its_vlan_and_its_packet_say() {
        let mut tags = Tags::default();
        let provider = VlanTag {
            is_provider: true,
            id: 20,
            priorities: [3, 0, 0, 0, 0, 0, 6, 0],
        };
        let inner = LinkTags {
            link: 4094,
            outer: provider,
            inner: Some(VlanTag::plain(10)),
        };
        let plain = LinkTags::single(10, VlanTag::plain(10));
        tags.set(&[inner, LinkTags::single(20, provider), plain]);
        let ipv4 = |tos: u8| [&[0; 12][..], &[8, 0, 0x45, tos]].concat();
        let arp = [&[0; 12][..], &[8, 6, 0, 0x10]].concat();
        let insert = |link, header: &[u8]| {
            let (tagged, _) = tags.insert(header, &TxOffload::on(link)).unwrap();
            tagged.bytes()[12..].to_vec()
        };
        assert_eq!(insert(10, &ipv4(0x10)), [0x81, 0, 0, 10, 8, 0, 0x45, 0x10]);
        assert_eq!(insert(20, &ipv4(0x10))[..4], [0x88, 0xa8, 6 << 5, 20]);
        assert_eq!(insert(20, &arp)[..4], [0x88, 0xa8, 3 << 5, 20]);
        let both = [0x88, 0xa8, 6 << 5, 20, 0x81, 0, 0, 10, 8, 0, 0x45, 0x10];
        assert_eq!(insert(4094, &ipv4(0x10)), both);
        assert_eq!(tags.control(&TxOffload::on(20), &ipv4(0x10)), 6 << 13 | 20);
        let classed = TxOffload {
            class: 1,
            ..TxOffload::on(20)
        };
        assert_eq!(tags.control(&classed, &ipv4(0x10)), 3 << 13 | 20);
        assert_eq!(tags.link_of((20, true)), Some(20));
        assert_eq!(tags.link_of((20, false)), None);
        assert_eq!(tags.link_of((10, false)), Some(10));
        assert_eq!(
            tags.link_within((20, true), || Some((10, false))),
            Some(4094)
        );
        assert_eq!(tags.link_within((20, true), || Some((10, true))), None);
        assert_eq!(tags.link_within((20, true), || None), None);
        let (tagged, _) = tags.insert(&ipv4(0x10), &TxOffload::on(4094)).unwrap();
        let frame = tagged.bytes();
        assert_eq!(
            (parse(frame), parse_second(frame)),
            (Some((20, true)), Some((10, false)))
        );
        assert_eq!(parse(&ipv4(0x10)), None);
        assert_eq!(parse(&frame[..15]), None);
    }

    #[test]
    fn a_frame_with_all_of_its_tags_is_of_the_link_that_they_name() {
        let frame = |tags: &[u8]| [&[1; 6][..], &[2; 6], tags, &[8, 0, 0x45]].concat();
        let provider = VlanTag {
            is_provider: true,
            ..VlanTag::plain(20)
        };
        let inner = LinkTags {
            link: 4094,
            outer: provider,
            inner: Some(VlanTag::plain(10)),
        };
        let links = [inner, LinkTags::single(10, VlanTag::plain(10))];
        let both = [0x88, 0xa8, 0, 20, 0x81, 0, 0xe0, 10];
        let rows: [(u16, &[u8], _); 9] = [
            (0, &[], Some((0, 0))),
            (0, &[0x81, 0, 0x20, 0], Some((0, 4))),
            (0, &[0x81, 0, 0x20, 10], Some((10, 4))),
            (0, &[0x81, 0, 0, 11], None),
            (0, &both, Some((4094, 8))),
            (0, &both[..4], None),
            (7, &[], None),
            (7, &[0x81, 0, 0, 7], Some((0, 4))),
            (7, &[0x81, 0, 0, 10], Some((10, 4))),
        ];
        for (own, bytes, link) in rows {
            let mut tags = Tags::new(own);
            tags.set(&links);
            let mut frame = frame(bytes);
            assert_eq!(tags.link_of_frame(&frame), link, "{own}: {bytes:x?}");
            if let Some((_, len)) = link {
                let plain = [&[1; 6][..], &[2; 6], &[8, 0, 0x45]].concat();
                assert_eq!(take_out(&mut frame, len), plain);
            }
        }
        assert_eq!(take_out(&mut [5; 15], 4), [5; 15]);
    }

    #[test]
    fn a_vlan_tag_that_the_kernel_stripped_is_restored() {
        let mut buffer = [0; 22];
        buffer[12..16].copy_from_slice(&[8, 0, 0x45, 1]);
        assert_eq!(restore(&mut buffer, 16, None), 16);
        assert_eq!(restore(&mut buffer, 11, Some([0x81, 0, 0, 7])), 11);
        assert_eq!(restore(&mut buffer, 16, Some([0x81, 0, 0, 7])), 20);
        assert_eq!(buffer[12..20], [0x81, 0, 0, 7, 8, 0, 0x45, 1]);
        // A frame that is longer than the buffer keeps its whole length.
        assert_eq!(restore(&mut buffer, 30, Some([0x88, 0xa8, 0, 9])), 34);
        assert_eq!(restore(&mut buffer[..13], 13, Some([0x81, 0, 0, 7])), 13);
    }
}
