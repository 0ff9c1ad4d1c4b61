//! Preparation before a program is started: checks that the device is there, and keeps a connection
//! to the keeper open for the program.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use slipstack_channel::control::{ControlSocket, DeviceSummary, Hello, Request, Switch, Welcome};
use slipstack_config::{OPTION, Settings};

use crate::door::{Identity, ask, by_path, introduce, options};
use crate::error::Error;
use crate::joining::bring_vlans;
use crate::keeper::{meet, with_absolute_path};

/// Descriptors and sentences that `slipstack run` hands to the program.
#[derive(Debug)]
pub struct Launched {
    /// Address at which the program can be reached, one line.
    pub reach: String,
    /// Inherited by the program and its children: a process that holds them may use the device. One
    /// for each instance.
    pub controls: Vec<OwnedFd>,
}

/// The mode of AF_XDP that leaves the choice to the device.
const XDP_MODE_OPEN: &str = "auto";

/// Finds or starts the keeper, or finds the instance, so that errors come before the program
/// starts.
///
/// # Errors
/// One sentence; nothing is left behind.
pub fn launch(settings: &Settings) -> Result<Launched, Error> {
    let mut hello = Identity::of_this_process().hello(None, None);
    hello.is_shared = true;
    let mut met = Vec::new();
    for name in &settings.instances {
        let place = Settings {
            instances: vec![name.clone()],
            ..settings.clone()
        };
        let socket = wait_for_instance(&place)?;
        let welcome = introduce(&socket, hello.clone())?;
        met.push((socket, welcome));
    }
    // A program of an instance uses the instance's network.
    if met.is_empty() {
        met.push(meet_as_asked(settings, &hello)?);
    }
    let reach = reach(settings, &met[0].1);
    let mut controls = Vec::new();
    for (socket, _) in met {
        let control = socket.into_fd();
        fcntl_setfd(&control, FdFlags::empty()).map_err(|error| {
            Error::io("keep the control connection for the program")(error.into())
        })?;
        controls.push(control);
    }
    Ok(Launched { reach, controls })
}

/// Longest wait for the end of a stack that nobody uses any more.
const UNUSED_WAIT: Duration = Duration::from_secs(2);

/// Meets a keeper whose stack is the one asked for. Another one that only waits for a further
/// program, as after the end of its last one, gives way; one that lacks VLANs alone gets them.
pub(crate) fn meet_as_asked(
    settings: &Settings,
    hello: &Hello,
) -> Result<(ControlSocket, Welcome), Error> {
    let until = Instant::now() + UNUSED_WAIT;
    loop {
        let (socket, welcome) = meet(settings, hello)?;
        let checked = check_network(settings, &welcome);
        let differs = checked.is_err() || !other_slots(settings, &welcome).is_empty();
        match checked {
            _ if differs && welcome.is_unused && Instant::now() < until => {
                // A program that has attached meanwhile keeps it running.
                let _ = ask(&socket, &Request::Stop { is_forced: false });
                drop(socket);
                std::thread::sleep(INSTANCE_PAUSE);
            }
            Err(error) => {
                let fits = |with: &Welcome| check_network(settings, with).is_ok();
                match bring_vlans(settings, &welcome, fits)? {
                    true => drop(socket),
                    false => return Err(error),
                }
            }
            Ok(()) => return Ok((socket, welcome)),
        }
    }
}

/// Longest wait for an instance that its keeper knows to be starting.
const STARTING_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for an instance that no keeper knows: its process may have been started at the same
/// instant as this one.
const UNKNOWN_WAIT: Duration = Duration::from_secs(2);
/// Interval of attempts.
const INSTANCE_PAUSE: Duration = Duration::from_millis(20);

/// Connects to the instance, and waits for one that is being started.
fn wait_for_instance(settings: &Settings) -> Result<ControlSocket, Error> {
    let start = Instant::now();
    loop {
        match by_path(settings) {
            Err(Error::NoInstance { .. }) if may_come(settings, start.elapsed()) => {
                std::thread::sleep(INSTANCE_PAUSE);
            }
            answer => return answer,
        }
    }
}

/// Returns whether an instance that did not run for so long is waited for further.
fn may_come(settings: &Settings, waited: Duration) -> bool {
    waited < UNKNOWN_WAIT || waited < STARTING_WAIT && is_starting(settings)
}

fn is_starting(settings: &Settings) -> bool {
    let reports = crate::admin::status(settings).unwrap_or_default();
    let engines = reports.iter().flat_map(|report| &report.engines);
    let mut names = engines.filter_map(|engine| engine.instance.as_deref());
    let clients = reports.iter().flat_map(|report| &report.programs);
    let mut starting = clients.filter_map(|program| program.instance.as_deref());
    let wanted = settings.instances.first().map(String::as_str);
    names.any(|name| Some(name) == wanted) || starting.any(|name| Some(name) == wanted)
}

/// Refuses a stack other than the one that the options describe. A program that names no addresses,
/// routes or rules uses the keeper's.
pub(crate) fn check_network(settings: &Settings, welcome: &Welcome) -> Result<(), Error> {
    check_device(settings, welcome)?;
    check_vlan(settings, welcome)?;
    check_interfaces(settings, welcome)?;
    check_address(settings, welcome)?;
    check_routes(settings, welcome)?;
    check_switches(settings, welcome)?;
    check_spread(settings, welcome)?;
    check_share(settings, welcome)
}

fn check_vlan(settings: &Settings, welcome: &Welcome) -> Result<(), Error> {
    let wanted = settings.own_vlan();
    if wanted == welcome.vlan {
        return Ok(());
    }
    Err(Error::OtherVlan {
        interface: welcome.interface.clone(),
        has: welcome.vlan,
        wanted,
    })
}

/// All that are named are interfaces of the stack.
fn check_interfaces(settings: &Settings, welcome: &Welcome) -> Result<(), Error> {
    let further = settings.further.iter().map(|it| &it.name);
    let mut names = settings.interface.iter().chain(further);
    let has = |name: &String| welcome.network.ports().any(|port| port.name == *name);
    match names.find(|name| !has(name)) {
        Some(missing) if !settings.further.is_empty() => Err(Error::OtherInterfaces {
            interface: welcome.interface.clone(),
            missing: missing.clone(),
        }),
        _ => Ok(()),
    }
}

/// A device in use is of the kind that it is, and was opened by the words by which it was.
fn check_device(settings: &Settings, welcome: &Welcome) -> Result<(), Error> {
    let device = &welcome.device;
    let (Some(wanted), Some(words)) = (settings.device_kind(), settings.device_with_mode()) else {
        return Ok(());
    };
    let (has, wanted) = if device.kind.split(':').next() != Some(wanted.name) {
        (&device.kind, wanted.name.to_owned())
    } else if wanted.capabilities.has_interface {
        // Settings that the options leave open are as the device has them.
        match missing_mode(&words, device) {
            None => return Ok(()),
            Some(mode) => (&device.kind, format!("{}:{mode}", wanted.name)),
        }
    } else {
        let words = with_absolute_path(&words);
        match &device.asked {
            Some(has) if !has.split_whitespace().eq(words.split_whitespace()) => (has, words),
            _ => return Ok(()),
        }
    };
    Err(Error::OtherDevice {
        interface: welcome.interface.clone(),
        has: has.clone(),
        wanted,
    })
}

/// Returns the first of the modes in the words of a device, such as `native` in `xdp:native`, that
/// an open device does not have.
fn missing_mode<'a>(words: &'a str, device: &DeviceSummary) -> Option<&'a str> {
    let modes = |words: &'a str| words.split([':', ',']).skip(1);
    let asked = device.asked.as_deref().unwrap_or_default();
    let has = |mode: &str| {
        let mut all = device.kind.split([':', ',']).chain(asked.split([':', ',']));
        mode == XDP_MODE_OPEN || all.any(|it| it == mode)
    };
    modes(words).find(|mode| !has(mode))
}

fn check_routes(settings: &Settings, welcome: &Welcome) -> Result<(), Error> {
    let network = &welcome.network;
    let wanted = options(settings).network.numbered_as(network);
    let has_all = wanted.routes.iter().all(|it| network.routes.contains(it))
        && wanted.rules.iter().all(|it| network.rules.contains(it));
    if !has_all {
        return Err(Error::OtherRoutes {
            interface: welcome.interface.clone(),
        });
    }
    Ok(())
}

/// A device is opened once: switches that it was not opened with would have no effect.
fn check_switches(settings: &Settings, welcome: &Welcome) -> Result<(), Error> {
    let forwards = welcome.network.is_forwarding;
    let has = |wanted: &Switch| {
        welcome.device.switches.contains(wanted) || (*wanted == Switch::Forwarding && forwards)
    };
    let lacks_tables = settings.connects_all_tables() && !welcome.network.connects_all_tables;
    let wanted = match options(settings).switches().find(|it| !has(it)) {
        Some(Switch::NoSegmentation) => OPTION.has_no_segmentation.name,
        Some(Switch::NoChecksum) => OPTION.has_no_checksum.name,
        Some(Switch::Promiscuous) => OPTION.is_promiscuous.name,
        Some(Switch::Autoconfigured) => OPTION.is_autoconfigured.name,
        Some(Switch::Forwarding) => OPTION.is_forwarding.name,
        None if lacks_tables => "sysctl net.add_addr_allfibs=1",
        None => return Ok(()),
    };
    Err(Error::OtherSwitch {
        interface: welcome.interface.clone(),
        wanted,
    })
}

fn check_spread(settings: &Settings, welcome: &Welcome) -> Result<(), Error> {
    let has = &welcome.device.spread;
    let wanted = options(settings).spread.to_string();
    if settings.spread.is_none() || wanted == *has {
        return Ok(());
    }
    Err(Error::OtherSpread {
        interface: welcome.interface.clone(),
        has: has.clone(),
        wanted,
    })
}

/// The end of a sentence about a running stack that has another number of slots than asked for;
/// empty if it has not. A profile names one too: the program uses those that there are.
pub(crate) fn other_slots(settings: &Settings, welcome: &Welcome) -> String {
    let has = welcome.device.slots;
    match settings.slots {
        Some(wanted) if wanted != has => {
            format!("; its stack was started with {has} slots, not {wanted}")
        }
        _ => String::new(),
    }
}

fn check_share(settings: &Settings, welcome: &Welcome) -> Result<(), Error> {
    if settings.kni.is_some() && welcome.network.share.is_none() {
        return Err(Error::NotShared {
            interface: welcome.interface.clone(),
        });
    }
    Ok(())
}

fn check_address(settings: &Settings, welcome: &Welcome) -> Result<(), Error> {
    let of_vlans = settings.sub_vlans().flat_map(|vlan| &vlan.addresses);
    let of_further = settings.further.iter().flat_map(|it| &it.addresses);
    let mut all = settings.addresses.iter().chain(of_further).chain(of_vlans);
    let missing = all.find(|wanted| {
        let wanted = (wanted.address, wanted.prefix_len);
        !welcome.network.configured().any(|own| own == wanted)
    });
    let Some(wanted) = missing else {
        return Ok(());
    };
    Err(Error::OtherAddress {
        interface: welcome.interface.clone(),
        has: addresses(welcome),
        wanted: wanted.to_string(),
    })
}

fn addresses(welcome: &Welcome) -> String {
    let texts: Vec<String> = welcome
        .network
        .addresses()
        .iter()
        .map(|(ip, len)| format!("{ip}/{len}"))
        .collect();
    texts.join(", ")
}

fn reach(settings: &Settings, welcome: &Welcome) -> String {
    let place = match settings.instances.as_slice() {
        [name] => format!("instance {name} on {}", welcome.interface),
        [] => {
            let ports = welcome.network.ports().map(|port| port.name.as_str());
            let ports: Vec<&str> = ports.collect();
            format!("{} {}", welcome.device.title, ports.join(" and "))
        }
        names => format!("instances {} on {}", names.join(", "), welcome.interface),
    };
    let addresses = addresses(welcome);
    let hosts = welcome.network.own().hosts.iter();
    let hosts: Vec<String> = hosts.map(ToString::to_string).collect();
    let from = match hosts.is_empty() {
        true => String::new(),
        false => format!(" from this machine ({})", hosts.join(", ")),
    };
    let note = other_slots(settings, welcome);
    format!("what the program listens on is reached at {addresses}{from}, {place}{note}")
}
