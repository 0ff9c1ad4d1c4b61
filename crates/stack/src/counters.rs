//! The table of all counters, drops included. Documentation, `status` and metrics are generated
//! from it.

use crate::traffic::{LinkTraffic, Traffic};

macro_rules! counters {
    ($($variant:ident $name:literal $help:literal)*) => {
        /// A row of the table. Rows whose name begins with `drop_` are reasons for dropping a
        /// frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Counter {
            $(#[doc = $help] $variant,)*
        }

        impl Counter {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)* }
            }
        }
    };
}

counters! {
    RxFrames "rx_frames" "frames handed to the stack"
    RxBytes "rx_bytes" "bytes of those frames"
    TxFrames "tx_frames" "frames handed to the device"
    TxBytes "tx_bytes" "bytes of those frames, a super-frame counted once"
    TxLocal "tx_local" "frames to our own address"

    DropEthernetShort "drop_ethernet_short" "shorter than an Ethernet header"
    DropEthernetType "drop_ethernet_type" "an EtherType that the stack does not speak"
    DropEthernetVlan "drop_ethernet_vlan" "frame of a VLAN (802.1Q), which the stack is not in"
    DropEthernetNotOurs "drop_ethernet_not_ours" "unicast to another station"

    RxArpRequests "rx_arp_requests" "ARP requests for our addresses"
    RxArpReplies "rx_arp_replies" "ARP replies taken"
    TxArpRequests "tx_arp_requests" "ARP requests sent"
    TxArpReplies "tx_arp_replies" "ARP replies sent"
    TxArpDefences "tx_arp_defences" "ARP announcements against another station that claims our \
        address (RFC 5227 2.4)"
    TxArpAnnouncements "tx_arp_announcements" "ARP announcements of addresses that have become \
        ours (RFC 5227 2.3)"
    DropArpMalformed "drop_arp_malformed" "ARP that is too short or not Ethernet and IPv4"
    DropArpSender "drop_arp_sender" "ARP with a sender that is no station (zero, group or our own \
        address)"
    DropArpConflict "drop_arp_conflict" "ARP from another station that claims our address"
    DropArpOffLink "drop_arp_off_link" "ARP from a sender that is not on a network of ours"
    DropArpUnsolicited "drop_arp_unsolicited" "unsolicited ARP that is not for one of our addresses"
    DropNeighbourQueue "drop_neighbour_queue" "frame pushed out of a full queue for an unresolved \
        neighbour"
    DropNeighbourFailed "drop_neighbour_failed" "frame for a neighbour that does not answer"
    DropNeighbourTable "drop_neighbour_table" "frame for a new neighbour while the table is full \
        of busy ones"

    RxIpv4 "rx_ipv4" "IPv4 packets that passed every check"
    DropIpv4Malformed "drop_ipv4_malformed" "IPv4 header truncated, version or lengths wrong"
    DropIpv4Checksum "drop_ipv4_checksum" "IPv4 header checksum wrong"
    DropIpv4Martian "drop_ipv4_martian" "IPv4 source that no host may have (loopback, group, class \
        E, 0/8, broadcast)"
    DropIpv4Spoofed "drop_ipv4_spoofed" "IPv4 source is our own address, from the wire (land)"
    DropIpv4NotOurs "drop_ipv4_not_ours" "IPv4 destination is not one of our addresses"
    DropIpv4LinkGroup "drop_ipv4_link_group" "unicast IPv4 in a link-layer broadcast or multicast"
    DropIpv4SourceRoute "drop_ipv4_source_route" "IPv4 with a source-route option"
    DropIpv4Options "drop_ipv4_options" "IPv4 with malformed options"
    DropIpv4Protocol "drop_ipv4_protocol" "IPv4 protocol that the stack does not speak"

    RxIcmpEchos "rx_icmp_echos" "echo requests"
    TxIcmpEchos "tx_icmp_echos" "echo replies sent"
    RxIcmpErrors "rx_icmp_errors" "ICMP errors that quote a packet of ours"
    TxIcmpErrors "tx_icmp_errors" "ICMP errors sent"
    DropIcmpMalformed "drop_icmp_malformed" "ICMP truncated"
    DropIcmpChecksum "drop_icmp_checksum" "ICMP checksum wrong"
    DropIcmpGroup "drop_icmp_group" "ICMP to a broadcast or multicast address"
    DropIcmpQuote "drop_icmp_quote" "ICMP error whose quoted packet is malformed or not ours"
    DropIcmpType "drop_icmp_type" "ICMP type or code without a meaning for us"
    DropIcmpRate "drop_icmp_rate" "ICMP error or reply not sent because of the rate limit"
    DropIcmpRole "drop_icmp_role" "echo request, IGMP or MLD that reached an engine instead of its \
        keeper"

    RxGroupReports "rx_group_reports" "reports of other members of a group, in IGMP or MLD of \
        version 1 or 2"
    RxIgmpQueries "rx_igmp_queries" "IGMP queries taken"
    TxIgmpReports "tx_igmp_reports" "IGMP reports and leaves sent"
    DropIgmpMalformed "drop_igmp_malformed" "IGMP that is malformed or from beyond the link"
    DropIgmpType "drop_igmp_type" "IGMP that is not for hosts"

    RxIpv6 "rx_ipv6" "IPv6 packets that passed every check"
    DropIpv6Malformed "drop_ipv6_malformed" "IPv6 header truncated, version or length wrong"
    DropIpv6Martian "drop_ipv6_martian" "IPv6 address that no packet may have (multicast source, \
        loopback, IPv4-mapped, unspecified)"
    DropIpv6Spoofed "drop_ipv6_spoofed" "IPv6 source is our own address, from the wire (land)"
    DropIpv6NotOurs "drop_ipv6_not_ours" "IPv6 destination is neither one of our addresses nor a \
        group that we hear"
    DropIpv6LinkGroup "drop_ipv6_link_group" "unicast IPv6 in a link-layer multicast"
    DropIpv6Extension "drop_ipv6_extension" "IPv6 with extension headers that are malformed, too \
        many, or ask for it"
    DropIpv6Protocol "drop_ipv6_protocol" "IPv6 next header that the stack does not speak"

    RxFragments "rx_fragments" "fragments of either family"
    TxFragments "tx_fragments" "fragments sent"
    TxFragmented "tx_fragmented" "packets sent in fragments"
    PathMtusLearnt "path_mtus_learnt" "path MTUs that an ICMP error has lowered"
    RxReassembled "rx_reassembled" "packets made of fragments"
    DropFragmentMalformed "drop_fragment_malformed" "fragment that is empty, uneven, beyond the \
        largest packet, or a first one without its headers"
    DropFragmentOverlap "drop_fragment_overlap" "fragments of a packet that overlap or contradict \
        each other, with all others of it (RFC 5722)"
    DropFragmentDuplicate "drop_fragment_duplicate" "fragment that was there already"
    DropFragmentPieces "drop_fragment_pieces" "fragments of a packet with too many of them"
    DropFragmentMemory "drop_fragment_memory" "fragments given up because the memory for them is \
        full, the oldest packet's first"
    DropFragmentTimeout "drop_fragment_timeout" "fragments whose rest did not come in time"
    DropFragmentEcn "drop_fragment_ecn" "fragments that met congestion although one was sent \
        without ECN (RFC 3168 5.3)"

    Forwarded "forwarded" "packets for others passed on to their next hop"
    ForwardApart "forward_apart" "joined packets for others cut apart because the way out takes no \
        joined ones, or none so large"
    DropForwardMartian "drop_forward_martian" "packet for others that may not leave its link \
        (link-local, group, loopback, class E, broadcast)"
    DropForwardTtl "drop_forward_ttl" "packet for others whose time to live or hop limit was used \
        up"
    DropForwardRoute "drop_forward_route" "packet for others without a route"
    DropForwardTooBig "drop_forward_too_big" "packet for others larger than its path takes, and \
        not to be cut"
    DropForwardJoined "drop_forward_joined" "segments for others that the device had joined \
        without saying how large each was"

    RoutersLost "routers_lost" "default routers that no longer answered"
    RxNdpSolicitations "rx_ndp_solicitations" "neighbour solicitations for our addresses"
    RxNdpAdvertisements "rx_ndp_advertisements" "neighbour advertisements taken"
    TxNdpSolicitations "tx_ndp_solicitations" "neighbour solicitations sent"
    TxNdpAdvertisements "tx_ndp_advertisements" "neighbour advertisements sent"
    TxNdpAnnouncements "tx_ndp_announcements" "of those, unasked, of addresses that have become \
        ours (RFC 4861 7.2.6)"
    RxNdpRouters "rx_ndp_routers" "router advertisements followed"
    RxNdpRedirects "rx_ndp_redirects" "redirects to a better first hop followed"
    TxNdpRouterSolicitations "tx_ndp_router_solicitations" "router solicitations sent"
    TxNdpProbes "tx_ndp_probes" "probes for addresses that are to become ours"
    RxMldQueries "rx_mld_queries" "multicast listener queries taken"
    TxMldReports "tx_mld_reports" "multicast listener reports sent"
    DropNdpHopLimit "drop_ndp_hop_limit" "neighbour discovery from beyond the link (hop limit not \
        255)"
    DropNdpFragment "drop_ndp_fragment" "neighbour discovery in fragments (RFC 6980)"
    DropNdpMalformed "drop_ndp_malformed" "neighbour discovery truncated or against RFC 4861 7.1"
    DropNdpNotOurs "drop_ndp_not_ours" "neighbour solicitation for another station's address"
    DropNdpOffLink "drop_ndp_off_link" "neighbour discovery about an address that is not on our \
        link, or from one to which there is no way"
    DropNdpLooped "drop_ndp_looped" "probe of ours for an address, looped back by the link \
        (RFC 7527)"
    DropNdpConflict "drop_ndp_conflict" "neighbour advertisement from another station that claims \
        our address"
    DropNdpUnsolicited "drop_ndp_unsolicited" "neighbour advertisement that nobody waits for, or \
        that may not override"
    DropNdpRouter "drop_ndp_router" "router advertisement or redirect where routes are configured, \
        or a solicitation, which is for routers"
    DropNdpRedirect "drop_ndp_redirect" "redirect that does not come from the first hop of its \
        destination"
    DropMldMalformed "drop_mld_malformed" "multicast listener query that is malformed or from \
        beyond the link"

    RxUdp "rx_udp" "datagrams delivered to a socket"
    TxUdp "tx_udp" "datagrams sent"
    DropUdpMalformed "drop_udp_malformed" "UDP truncated or its length wrong"
    DropUdpChecksum "drop_udp_checksum" "UDP checksum wrong"
    DropUdpPort "drop_udp_port" "UDP to a port that nobody has bound"
    DropUdpProgram "drop_udp_program" "UDP that the BPF program of a SO_REUSEPORT group drops"
    DropUdpGroup "drop_udp_group" "UDP to a group or broadcast address that no socket takes"

    DropTcpChecksum "drop_tcp_checksum" "TCP checksum wrong"
    DropTcpDeferred "drop_tcp_deferred" "ACKs of a handshake that brought nothing, while the \
        listener waits for data"
    DropTcpMalformed "drop_tcp_malformed" "TCP header truncated or its lengths wrong"
    DropTcpGroup "drop_tcp_group" "TCP to or from a broadcast or multicast address"
    RxTcp "rx_tcp" "TCP segments that passed the checks of form"
    RxTcpMerged "rx_tcp_merged" "of those, taken together with the one before"
    RxTcpSteps "rx_tcp_steps" "looks at a segment beyond header prediction: by a connection, a \
        handshake, TIME-WAIT, or where nothing is known of it"
    RxTcpTaken "rx_tcp_taken" "of those, looks that had an effect; the others are drops, strays \
        and resets"
    TxTcp "tx_tcp" "TCP segments sent, a super-segment counted once"
    TcpAccepted "tcp_accepted" "passive opens that were completed"
    TxTcpCookies "tx_tcp_cookies" "SYN-ACKs whose half-open connection is a cookie (RFC 4987)"
    RxTcpCookies "rx_tcp_cookies" "connections made from a cookie"
    RxTcpBadCookies "rx_tcp_bad_cookies" "ACKs for no flow whose cookie was wrong or too old, \
        dropped as such"
    TxTcpSynData "tx_tcp_syn_data" "SYNs that carried data (RFC 7413)"
    TcpSynDataTaken "tcp_syn_data_taken" "SYNs of ours whose data the peer took"
    TcpFastOpenAccepted "tcp_fast_open_accepted" "connections accepted with the data of their SYN"
    RxTcpBadFastOpen "rx_tcp_bad_fast_open" "SYNs with a Fast Open cookie that is not ours; an \
        ordinary handshake followed"
    RxTcpFastOpenFull "rx_tcp_fast_open_full" "SYNs whose data was not taken since too many such \
        connections were pending"
    TcpConnects "tcp_connects" "active opens that were begun"
    TcpConnectsAway "tcp_connects_away" "active opens from a port whose frames the card puts into \
        another engine's queue, because no other was left"
    TcpTimeouts "tcp_timeouts" "retransmission timeouts"
    TxTcpMtuProbes "tx_tcp_mtu_probes" "packets larger than the path is known to take, sent to \
        find out"
    TcpMtuRaised "tcp_mtu_raised" "such probes that got through: the connection's packets are as \
        large from then on"
    TcpBlackHoles "tcp_black_holes" "packets made smaller because large ones vanish without an \
        ICMP error"
    TcpSynExpired "tcp_syn_expired" "half-open connections given up"
    TxTcpResentFast "tx_tcp_resent_fast" "retransmissions of fast recovery"
    TxTcpResentTimeout "tx_tcp_resent_timeout" "retransmissions after a timeout"
    TxTcpTailProbes "tx_tcp_tail_probes" "tail loss probes"
    TxTcpWindowProbes "tx_tcp_window_probes" "zero-window probes"
    TxTcpKeepAlives "tx_tcp_keep_alives" "keep-alive probes"
    TxTcpResets "tx_tcp_resets" "resets sent"
    TxTcpChallenges "tx_tcp_challenges" "challenge ACKs (RFC 5961)"
    TcpAcksHeld "tcp_acks_held" "empty segments outside of the window left unanswered, too soon \
        after the last one"
    TcpOrphansReset "tcp_orphans_reset" "connections reset when their program closed them, the \
        limit of orphans being reached"
    RxTcpResets "rx_tcp_resets" "resets that ended a connection"
    RxTcpOutOfOrder "rx_tcp_out_of_order" "segments that arrived before their predecessors"
    TcpStrays "tcp_strays" "TCP segments that were left to another engine"
    UdpStrays "udp_strays" "datagrams for closed ports that were left to another engine or the \
        keeper"
    DropTcpPort "drop_tcp_port" "TCP to a port or flow that does not exist"
    DropTcpRst "drop_tcp_rst" "RST without the exact sequence number, or for nothing"
    DropTcpSyn "drop_tcp_syn" "SYN on an open connection"
    DropTcpNoAck "drop_tcp_no_ack" "segment without ACK in a state that needs it"
    DropTcpAck "drop_tcp_ack" "acknowledgment of what was not sent, or of long ago"
    DropTcpPaws "drop_tcp_paws" "timestamp older than the connection's, or missing"
    DropTcpHops "drop_tcp_hops" "segment from farther away than its socket admits"
    DropTcpOutOfWindow "drop_tcp_out_of_window" "segment outside of the receive window"
    DropTcpNoRoom "drop_tcp_no_room" "payload for which the receive ring had no room"
    DropTcpReassembly "drop_tcp_reassembly" "out-of-order payload beyond the limit of gaps"
    DropTcpClosed "drop_tcp_closed" "data for a program that has closed, answered with a reset"
    DropTcpState "drop_tcp_state" "segment without a meaning in its connection's state: no SYN for \
        one that opens, text after the peer's FIN"
    DropTcpWindow "drop_tcp_window" "text beyond the window of a segment whose ACK was taken: a \
        window probe"
    DropTcpRoute "drop_tcp_route" "handshake with a peer to which there is no route"
    DropTcpBacklog "drop_tcp_backlog" "handshake while the accept queue was full"
    DropTcpSynTable "drop_tcp_syn_table" "SYN while the table of half-open connections was full"
    DropTcpIcmp "drop_tcp_icmp" "ICMP error that quotes nothing outstanding"

    DropNoRoute "drop_no_route" "packet of ours to a network without a route"
    DropFilterIn "drop_filter_in" "frame that a rule of the packet filter keeps out"
    DropFilterOut "drop_filter_out" "packet of ours that a rule of the packet filter keeps in"
    DropTooBig "drop_too_big" "packet of ours larger than the link's MTU"
}

/// Values of the table.
#[derive(Clone, Debug)]
pub struct Counters {
    values: [u64; Counter::ALL.len()],
    traffic: Traffic,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            values: [0; Counter::ALL.len()],
            traffic: Traffic::default(),
        }
    }
}

impl Counters {
    #[inline]
    pub fn bump(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Counts a frame received on a link.
    #[inline]
    pub(crate) fn count_in(&mut self, link: u16, bytes: usize) {
        self.count_all_in(link, 1, bytes as u64);
    }

    /// Counts several.
    #[inline]
    pub(crate) fn count_all_in(&mut self, link: u16, frames: u64, bytes: u64) {
        self.add(Counter::RxFrames, frames);
        self.add(Counter::RxBytes, bytes);
        if link != 0 {
            self.traffic.count_in(link, frames, bytes);
        }
    }

    /// Counts a frame that leaves by a link.
    #[inline]
    pub(crate) fn count_out(&mut self, link: u16, bytes: usize) {
        self.bump(Counter::TxFrames);
        self.add(Counter::TxBytes, bytes as u64);
        if link != 0 {
            self.traffic.count_out(link, bytes);
        }
    }

    /// The traffic of each link beside the device's own that has had some.
    pub fn links(&self) -> impl Iterator<Item = (u16, LinkTraffic)> + '_ {
        self.traffic.iter()
    }

    /// Counts a segment that TCP received, and its outcome.
    pub fn bump_segment(&mut self, outcome: Counter) {
        self.bump(Counter::RxTcpSteps);
        self.bump(outcome);
    }

    #[inline]
    pub fn add(&mut self, counter: Counter, n: u64) {
        let value = &mut self.values[counter as usize];
        *value = value.wrapping_add(n);
    }

    #[inline]
    pub fn value(&self, counter: Counter) -> u64 {
        self.values[counter as usize]
    }

    /// All rows in the table's order.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL
            .iter()
            .map(|&counter| (counter, self.value(counter)))
    }

    /// Frames dropped, for all reasons together.
    pub fn dropped(&self) -> u64 {
        self.iter()
            .filter(|(counter, _)| counter.name().starts_with("drop_"))
            .map(|(_, n)| n)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_lower_case() {
        let names: BTreeSet<_> = Counter::ALL.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), Counter::ALL.len());
        assert!(names.iter().all(|n| {
            n.bytes()
                .all(|b| b == b'_' || b.is_ascii_lowercase() || b.is_ascii_digit())
        }));
    }

    #[test]
    fn drops_are_summed_over_all_reasons() {
        let mut counters = Counters::default();
        counters.bump(Counter::RxFrames);
        counters.bump(Counter::DropIpv4Checksum);
        counters.add(Counter::DropUdpPort, 2);
        assert_eq!(counters.dropped(), 3);
    }
}
