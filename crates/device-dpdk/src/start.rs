//! Starts the port from the keeper's request.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use slipstack_device::dpdk::{Options, Order, PortDescription, PortRss};

use crate::eal;
use crate::sys::{Eal, Port, PortInfo, PortSetup};

/// Time for which a card's link is waited for: frames sent before are lost.
const LINK_WAIT: Duration = Duration::from_secs(4);
const LINK_PAUSE: Duration = Duration::from_millis(20);

/// The kernel's list of the machine's devices.
const SYSFS: &str = "/sys";

/// The driver that opens packet sockets, alone or in a bond.
const PACKET_SOCKETS: &str = "net_af_packet";
/// The driver that makes TAPs. It cuts TCP in software, and takes no pieces of a full MTU.
const TAP: &str = "net_tap";

/// A port that runs.
pub struct Started {
    pub port: Port,
    /// Senders on this machine leave their checksums to be filled in, and only the frames show it.
    pub has_partial: bool,
    /// Frames can be waited for.
    pub has_interrupts: bool,
    pub told: PortDescription,
}

/// Initialises DPDK, finds the port and starts it.
///
/// # Errors
/// One sentence.
pub fn start(order: &Order) -> Result<Started, String> {
    if let Some(path) = eal::missing_socket(&order.options) {
        return Err(format!(
            "there is no vhost-user socket {path}: start the switch that makes it first"
        ));
    }
    if let Some(sentence) = eal::missing_card(&order.options, Path::new(SYSFS)) {
        return Err(sentence);
    }
    let words = eal::words(&order.options);
    let eal = Eal::init(&words)
        .map_err(|why| format!("DPDK does not start with these arguments: {why}"))?;
    let options = &order.options;
    let ports = eal.ports();
    if let Some(sentence) =
        eal::unbound_card(options, Path::new(SYSFS)).filter(|_| ports.is_empty())
    {
        return Err(sentence);
    }
    let info = find(&ports, options.port.as_deref())?;
    check_threads(options, eal.threads())?;
    let is_tap = is_lone_tap(&info.driver(), &options.eal);
    let setup = PortSetup {
        mac: if is_tap {
            [0; 6]
        } else {
            order.mac.unwrap_or_default()
        },
        mtu: options.mtu.unwrap_or(0),
        descriptors: options.descriptors,
        checksum: u8::from(options.has_checksum && info.has_checksum != 0),
        tso: u8::from(options.has_tso && info.has_tso != 0 && info.driver() != TAP),
        promiscuous: u8::from(options.is_promiscuous),
        // A bond works only while it is polled.
        interrupts: u8::from(options.sleep_us != 0 && info.is_bond == 0),
        queues: options.queues,
        symmetric: u8::from(options.is_symmetric),
        strip_tags: u8::from(options.has_tag_stripping),
    };
    let name = info.name();
    let (port, mut info) = eal
        .start(info.number, &setup)
        .map_err(|why| not_started(&name, options.queues, &why))?;
    if is_card(&name) {
        await_link(&port);
    }
    if is_tap {
        info.mac = order.mac.unwrap_or_else(|| neighbour_of(info.mac));
    }
    let rss = port.rss().filter(|_| info.has_rss != 0);
    Ok(Started {
        told: tell(
            &info,
            options,
            rss.map(|(key, table)| PortRss { key, table }),
        ),
        port,
        has_interrupts: info.has_interrupts != 0,
        has_partial: options.eal.iter().any(|word| word.contains(PACKET_SOCKETS)),
    })
}

fn not_started(name: &str, queues: u16, why: &str) -> String {
    let hint = match why.contains("Cannot allocate memory") {
        true if queues > 1 => ": give DPDK more (-m MEGABYTES), or fewer --queues",
        true => ": give DPDK more (-m MEGABYTES)",
        false => "",
    };
    format!("DPDK's port {name} does not start: {why}{hint}")
}

/// # Errors
/// The arguments name fewer cores than there are to be queues.
fn check_threads(options: &Options, threads: usize) -> Result<(), String> {
    let queues = options.queues;
    match usize::from(queues) <= threads {
        true => Ok(()),
        false => Err(format!(
            "--queues={queues} needs as many cores, and DPDK's arguments name {threads}: name more \
             (-l 0,1,…), or none, and the threads are bound to no core"
        )),
    }
}

/// Selects the port: the named one, a bond, the only one.
fn find(ports: &[PortInfo], wanted: Option<&str>) -> Result<PortInfo, String> {
    let names: Vec<String> = ports.iter().map(PortInfo::name).collect();
    let names = names.join(", ");
    if ports.is_empty() {
        return Err(
            "DPDK finds no port: name one with --vdev=… or bind a card to vfio-pci and \
                    allow it with -a ADDRESS"
                .to_owned(),
        );
    }
    if let Some(wanted) = wanted {
        let number = wanted.parse().ok();
        let is_it = |port: &&PortInfo| port.name() == wanted || Some(port.number) == number;
        let found = ports.iter().find(is_it);
        return found
            .copied()
            .ok_or_else(|| format!("DPDK has no port \"{wanted}\"; there are: {names}"));
    }
    let bonds: Vec<&PortInfo> = ports.iter().filter(|port| port.is_bond != 0).collect();
    let free: Vec<&PortInfo> = ports.iter().filter(|port| port.is_bonded == 0).collect();
    match (bonds.as_slice(), free.as_slice()) {
        ([bond], _) => Ok(**bond),
        (_, [only]) => Ok(**only),
        _ => Err(format!(
            "DPDK has several ports; say which one with --port=NAME behind \"--\": {names}"
        )),
    }
}

/// Returns whether it is a TAP without a remote: both ends have one address, and need two.
fn is_lone_tap(driver: &str, words: &[String]) -> bool {
    driver == TAP && !words.iter().any(|word| word.contains(",remote="))
}

/// Another local address of one station.
fn neighbour_of(mut mac: [u8; 6]) -> [u8; 6] {
    mac[0] = (mac[0] | 2) & !1;
    mac[5] ^= 1;
    mac
}

/// By its address on the bus, such as 0000:02:00.0.
fn is_card(name: &str) -> bool {
    name.contains(':') && name.contains('.')
}

fn await_link(port: &Port) {
    let until = Instant::now() + LINK_WAIT;
    while !port.is_up() && Instant::now() < until {
        sleep(LINK_PAUSE);
    }
}

fn tell(info: &PortInfo, options: &Options, rss: Option<PortRss>) -> PortDescription {
    let waits = match (options.sleep_us, info.has_interrupts != 0) {
        (0, _) => "polled without end".to_owned(),
        (_, true) => "interrupts".to_owned(),
        (us, false) => format!("polled, sleeps up to {us} µs"),
    };
    let mut parts = vec![format!("{}; {waits}", info.driver())];
    parts.push(offloads(info, options));
    parts.extend(queues(info, options));
    PortDescription {
        mac: info.mac,
        mtu: info.mtu,
        has_checksum: info.has_checksum != 0,
        has_tso: info.has_tso != 0,
        queues: info.queues,
        rss,
        mode: format!("{} ({})", info.name(), parts.join("; ")),
    }
}

fn offloads(info: &PortInfo, options: &Options) -> String {
    let all = [
        (info.has_checksum != 0, "checksums"),
        (info.has_tso != 0, "TSO"),
        (info.strips_tags != 0, "VLAN stripping"),
        (
            options.has_tag_stripping && info.strips_tags == 0,
            "no VLAN stripping: tags are taken out here",
        ),
    ];
    let all: Vec<&str> = all
        .into_iter()
        .filter_map(|(has, name)| has.then_some(name))
        .collect();
    match all.is_empty() {
        true => "no offloads".to_owned(),
        false => all.join(", "),
    }
}

/// Says what became of several queues, if they were wanted.
fn queues(info: &PortInfo, options: &Options) -> Option<String> {
    if options.queues == 1 {
        return None;
    }
    let rss = match (info.queues, info.has_rss != 0, options.is_symmetric) {
        (1, _, _) => "",
        (_, true, true) => ", symmetric RSS",
        (_, true, false) => ", RSS",
        (_, false, _) => ", without RSS",
    };
    Some(match info.queues < options.queues {
        true => format!("{} of {} queues{rss}", info.queues, options.queues),
        false => format!("{} queues{rss}", info.queues),
    })
}
