use super::*;
use crate::rng::SipKey;
use std::vec;

const ADDRESSES_MAX: usize = 8;
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const OTHER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const FAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1);

fn on_first(address: Ipv6Addr) -> LearntNetwork {
    LearntNetwork {
        address,
        prefix_len: 64,
        link: 0,
    }
}

/// A host and the clock of its world.
struct Host {
    slaac: Slaac,
    now: Instant,
    actions: Vec<Action>,
}

impl Host {
    fn new() -> Host {
        Host::resuming(&[], Instant::from_millis(1_000_000))
    }

    fn resuming(image: &[u64], now: Instant) -> Host {
        let identifiers = Identifiers {
            secret: SipKey { k0: 1, k1: 2 },
            interface: 3,
        };
        let config = SlaacConfig {
            identifiers,
            addresses_max: ADDRESSES_MAX,
            image: image.to_vec(),
        };
        Host {
            slaac: Slaac::new(&config, LinkId(0), &config.image, now),
            now,
            actions: Vec::new(),
        }
    }

    /// With its link-local address.
    fn up() -> Host {
        let mut host = Host::new();
        host.pass_ms(500);
        host
    }

    fn pass_ms(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        while let Some(at) = self.slaac.next_deadline().filter(|at| *at <= end) {
            assert!(at >= self.now || at.as_nanos() == 0, "a deadline stays");
            self.now = self.now.max(at);
            self.slaac.on_time(self.now, &mut self.actions);
        }
        self.now = end;
    }

    fn pass_s(&mut self, s: u64) {
        self.pass_ms(s * 1000);
    }

    fn hear(&mut self, router: Ipv6Addr, lifetime_s: u16, options: &[u8]) {
        self.hear_preferred(router, 0, lifetime_s, options);
    }

    fn hear_preferred(&mut self, router: Ipv6Addr, flags: u8, lifetime_s: u16, options: &[u8]) {
        let mut body = vec![0; 8];
        body.extend(options);
        let [a, b] = lifetime_s.to_be_bytes();
        let told = RouterAdvertisement::parse([64, flags, a, b], &body).unwrap();
        self.slaac.on_advertisement(self.now, router, &told, 1500);
    }

    fn learnt(&self) -> Learnt {
        self.slaac.learnt(self.now)
    }

    /// The addresses of a prefix: whether each is deprecated.
    fn of(&self, n: u16) -> Vec<bool> {
        let net = net(n);
        let learnt = self.learnt().addresses;
        let of = learnt.iter().filter(|known| network_of(known.ip) == net);
        of.map(|known| known.is_deprecated).collect()
    }
}

fn net(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, n, 0, 0, 0, 0, 0)
}

/// On the link and autonomous.
fn prefix(n: u16, valid_s: u32, preferred_s: u32) -> Vec<u8> {
    flagged(n, 0xc0, valid_s, preferred_s)
}

fn flagged(n: u16, flags: u8, valid_s: u32, preferred_s: u32) -> Vec<u8> {
    let mut option = vec![3, 4, 64, flags];
    option.extend(valid_s.to_be_bytes());
    option.extend(preferred_s.to_be_bytes());
    option.extend([0; 4]);
    option.extend(net(n).octets());
    option
}

#[test]
fn the_first_address_is_probed_for_before_a_router_is_asked() {
    // RFC 4862 2, 5.3 and 5.4.
    let mut host = Host::new();
    assert!(host.learnt().addresses.is_empty());
    host.pass_ms(150);
    let ip = host.slaac.heard().next().unwrap();
    assert!(ip.is_unicast_link_local());
    assert_eq!(host.actions, [Action::Probe(ip), Action::Probe(ip)]);
    assert!(host.learnt().addresses.is_empty());
    host.pass_ms(100);
    assert_eq!(host.actions[2..], [Action::Solicit]);
    assert_eq!(host.learnt().addresses[0].ip, ip);
}

#[test]
fn an_address_of_another_station_is_not_assigned() {
    // RFC 7217 6.
    let mut host = Host::new();
    let mut tried = Vec::new();
    for _ in 0..ATTEMPTS {
        host.pass_ms(50);
        let ip = host.slaac.heard().next().unwrap();
        assert!(!tried.contains(&ip));
        assert!(host.slaac.on_claim(host.now, ip));
        tried.push(ip);
    }
    host.pass_s(10);
    assert!(host.learnt().addresses.is_empty());
    assert!(!host.slaac.on_claim(host.now, tried[0]), "given up");
    assert!(host.slaac.is_settled());
}

#[test]
fn an_assigned_address_is_not_given_up_for_a_claim() {
    let mut host = Host::up();
    let ip = host.learnt().addresses[0].ip;
    assert!(!host.slaac.on_claim(host.now, ip));
    assert_eq!(host.learnt().addresses[0].ip, ip);
}

#[test]
fn routers_are_asked_ever_more_rarely_until_one_answers() {
    // RFC 4861 6.3.7, RFC 7559 2.
    let mut host = Host::up();
    host.pass_s(4);
    let count = |host: &Host| {
        let all = host.actions.iter();
        all.filter(|action| **action == Action::Solicit).count()
    };
    assert!(host.slaac.is_settled());
    assert_eq!(count(&host), 4);
    host.pass_s(60 * 60);
    assert!((12..=16).contains(&count(&host)), "{}", count(&host));
    host.hear(ROUTER, 1800, &[]);
    let before = count(&host);
    host.pass_s(7200);
    assert_eq!(count(&host), before);
}

#[test]
fn a_prefix_gives_an_address_that_is_deprecated_and_then_removed() {
    // RFC 4862 5.5.3 and 5.5.4.
    let mut host = Host::up();
    host.hear(ROUTER, 1800, &prefix(1, 60, 30));
    assert_eq!(host.of(1), [] as [bool; 0]);
    host.pass_s(1);
    assert_eq!(host.of(1), [false]);
    assert_eq!(host.learnt().networks, [on_first(net(1))]);
    host.pass_s(30);
    assert_eq!(host.of(1), [true]);
    host.pass_s(30);
    assert_eq!(host.of(1), [] as [bool; 0]);
    assert!(host.learnt().networks.is_empty());
    assert_eq!(host.learnt().routers, [ROUTER]);
}

#[test]
fn lifetimes_are_renewed_and_a_second_prefix_comes_later() {
    // RFC 4862 5.5.3.
    let mut host = Host::up();
    for _ in 0..10 {
        host.hear(ROUTER, 1800, &prefix(1, 60, 30));
        host.pass_s(20);
        assert_eq!(host.of(1), [false]);
    }
    host.hear(ROUTER, 1800, &prefix(2, 600, 600));
    host.pass_s(1);
    assert_eq!((host.of(1), host.of(2)), (vec![false], vec![false]));
    host.pass_s(20);
    assert_eq!((host.of(1), host.of(2)), (vec![true], vec![false]));
}

#[test]
fn a_prefix_that_is_withdrawn_leaves_the_link_at_once_and_its_address_by_the_two_hour_rule() {
    // RFC 4861 6.3.4, RFC 4862 5.5.3.
    let mut host = Host::up();
    host.hear(ROUTER, 1800, &prefix(1, 86400, 86400));
    host.pass_s(1);
    host.hear(ROUTER, 1800, &prefix(1, 0, 0));
    assert!(host.learnt().networks.is_empty());
    assert_eq!(host.of(1), [true]);
    host.pass_s(7199);
    assert_eq!(host.of(1), [true]);
    host.pass_s(1);
    assert_eq!(host.of(1), [] as [bool; 0]);
}

#[test]
fn prefix_flags_select_autoconfiguration_and_on_link() {
    // RFC 4861 4.6.2, RFC 4862 5.5.3.
    let mut host = Host::up();
    host.hear(ROUTER, 1800, &flagged(1, 0x80, 60, 30));
    host.hear(ROUTER, 1800, &flagged(2, 0x40, 60, 30));
    host.hear(ROUTER, 1800, &flagged(3, 0x00, 60, 30));
    host.pass_s(1);
    assert_eq!(host.learnt().networks, [on_first(net(1))]);
    assert_eq!(
        (host.of(1).len(), host.of(2).len(), host.of(3).len()),
        (0, 1, 0)
    );
}

#[test]
fn prefixes_that_make_no_address_are_left_out() {
    // RFC 4862 5.5.3.
    let mut host = Host::up();
    let mut long = prefix(1, 60, 30);
    long[2] = 80;
    let mut local = prefix(1, 60, 30);
    local[16..32].copy_from_slice(&LINK_LOCAL.octets());
    for bad in [long, local, prefix(1, 0, 0), prefix(1, 30, 60)] {
        host.hear(ROUTER, 1800, &bad);
        host.pass_s(1);
        assert_eq!(host.learnt().addresses.len(), 1, "{bad:?}");
    }
}

#[test]
fn a_router_is_removed_when_it_withdraws_or_its_lifetime_ends() {
    // RFC 4861 6.3.4.
    let mut host = Host::up();
    host.hear(ROUTER, 100, &[]);
    host.hear(OTHER, 50, &[]);
    assert_eq!(host.learnt().routers, [ROUTER, OTHER]);
    host.pass_s(51);
    assert_eq!(host.learnt().routers, [ROUTER]);
    host.hear(OTHER, 500, &[]);
    host.hear(ROUTER, 0, &[]);
    assert_eq!(host.learnt().routers, [OTHER]);
    host.pass_s(500);
    assert!(host.learnt().routers.is_empty());
    // One that was never there.
    host.hear(ROUTER, 0, &[]);
    assert!(host.learnt().routers.is_empty());
}

const HIGH: u8 = 0x08;
const LOW: u8 = 0x18;

/// RFC 4191 3.1 and 3.2.
#[test]
fn a_router_with_a_higher_preference_comes_first() {
    let mut host = Host::up();
    host.hear_preferred(ROUTER, LOW, 100, &[]);
    host.hear(OTHER, 100, &[]);
    assert_eq!(host.learnt().routers, [OTHER, ROUTER]);
    host.hear(ROUTER, 100, &[]);
    assert_eq!(host.learnt().routers, [ROUTER, OTHER]);
    host.hear_preferred(OTHER, HIGH, 100, &[]);
    assert_eq!(host.learnt().routers, [OTHER, ROUTER]);
    let next = Host::resuming(&host.slaac.image(), host.now);
    assert_eq!(next.learnt(), host.learnt());
    host.hear_preferred(OTHER, HIGH, 0, &[]);
    assert_eq!(host.learnt().routers, [ROUTER]);
}

/// RFC 4191 3.1: a route for everything counts instead of the header.
#[test]
fn a_route_for_everything_overrides_the_header() {
    let mut host = Host::up();
    host.hear(ROUTER, 100, &[]);
    let everything = [24, 1, 0, HIGH, 0, 0, 0, 50];
    host.hear_preferred(OTHER, LOW, 0, &everything);
    assert_eq!(host.learnt().routers, [OTHER, ROUTER]);
    host.pass_s(51);
    assert_eq!(host.learnt().routers, [ROUTER]);
    let longer = [24, 2, 64, HIGH, 0, 0, 0, 50, 0, 0, 0, 0, 0, 0, 0, 0];
    host.hear_preferred(OTHER, LOW, 0, &longer);
    assert_eq!(host.learnt().routers, [ROUTER]);
}

#[test]
fn a_redirect_lasts_as_long_as_its_router() {
    // RFC 4861 5.3.
    let mut host = Host::up();
    host.hear(ROUTER, 100, &[]);
    let redirected = Redirected {
        destination: FAR,
        hop: OTHER,
        link: 0,
    };
    host.slaac.on_redirect(host.now, ROUTER, redirected);
    assert_eq!(host.learnt().redirects, [redirected]);
    host.pass_s(100);
    assert!(host.learnt().redirects.is_empty());
}

#[test]
fn unspecified_router_parameters_are_unchanged() {
    // RFC 4861 4.2, 6.3.2 and 6.3.4.
    let mut host = Host::up();
    let mut body = vec![0, 0, 0x75, 0x30, 0, 0, 3, 0xe8];
    body.extend([5, 1, 0, 0, 0, 0, 5, 0x78]);
    let told = RouterAdvertisement::parse([50, 0, 0, 9], &body).unwrap();
    host.slaac.on_advertisement(host.now, ROUTER, &told, 1500);
    for bad_mtu in [1000u32, 9000, 70_000] {
        let mut body = vec![0; 8];
        body.extend([5, 1, 0, 0]);
        body.extend(bad_mtu.to_be_bytes());
        let told = RouterAdvertisement::parse([0, 0, 0, 9], &body).unwrap();
        host.slaac.on_advertisement(host.now, ROUTER, &told, 1500);
    }
    let learnt = host.learnt();
    assert_eq!(
        (learnt.links[0].hop_limit, learnt.mtu),
        (Some(50), Some(1400))
    );
    assert_eq!(learnt.links[0].reachable_ms, Some(30_000));
    assert_eq!(learnt.links[0].retry_ms, Some(1_000));
}

#[test]
fn no_reachable_time_is_longer_than_an_hour() {
    // RFC 4861 6.2.1.
    let mut host = Host::up();
    for (told_ms, kept_s) in [(3_600_000u32, 3_600), (3_600_001, 3_600), (60_000, 60)] {
        let body = [&told_ms.to_be_bytes()[..], &[0; 4]].concat();
        let told = RouterAdvertisement::parse([0, 0, 0, 9], &body).unwrap();
        host.slaac.on_advertisement(host.now, ROUTER, &told, 1500);
        let kept = host.learnt().links[0].reachable_ms;
        assert_eq!(kept, Some(kept_s * 1_000));
    }
}

#[test]
fn one_router_cannot_fill_our_memory() {
    let mut host = Host::up();
    for n in 0..200 {
        host.hear(
            Ipv6Addr::from_bits(ROUTER.to_bits() + u128::from(n)),
            1800,
            &prefix(n, 60, 30),
        );
        let redirected = Redirected {
            destination: net(n),
            hop: OTHER,
            link: 0,
        };
        host.slaac.on_redirect(host.now, ROUTER, redirected);
    }
    host.pass_s(1);
    let learnt = host.learnt();
    assert_eq!(learnt.addresses.len(), ADDRESSES_MAX);
    assert_eq!(
        (learnt.networks.len(), learnt.routers.len()),
        (NETWORKS_MAX, ROUTERS_MAX)
    );
    assert_eq!(learnt.redirects.len(), REDIRECTS_MAX);
}

#[test]
fn a_successor_goes_on_where_the_former_keeper_was() {
    let mut host = Host::up();
    host.hear(ROUTER, 100, &prefix(1, 60, 30));
    let redirected = Redirected {
        destination: FAR,
        hop: OTHER,
        link: 0,
    };
    host.slaac.on_redirect(host.now, ROUTER, redirected);
    host.pass_s(1);
    let image = host.slaac.image();
    let mut next = Host::resuming(&image, host.now);
    assert_eq!(next.learnt(), host.learnt());
    assert_eq!(next.slaac.image(), image);
    next.pass_ms(10);
    assert_eq!(next.actions, [Action::Solicit]);
    for host in [&mut host, &mut next] {
        host.pass_s(40);
        assert_eq!(host.of(1), [true]);
        host.pass_s(20);
        assert_eq!(host.of(1), [] as [bool; 0]);
        host.pass_s(40);
        assert!(host.learnt().routers.is_empty() && host.learnt().redirects.is_empty());
        assert_eq!(
            host.learnt().addresses.len(),
            1,
            "the link-local address stays"
        );
    }
}

#[test]
fn a_truncated_or_too_long_image_does_no_harm() {
    let mut host = Host::up();
    host.hear(ROUTER, 100, &prefix(1, 60, 30));
    host.pass_s(1);
    let image = host.slaac.image();
    for len in 0..image.len() {
        let mut next = Host::resuming(&image[..len], host.now);
        next.pass_s(100);
    }
    let wild = [u64::MAX; 300];
    let next = Host::resuming(&wild, host.now);
    assert!(next.learnt().addresses.len() <= ADDRESSES_MAX);
}
