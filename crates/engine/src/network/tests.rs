use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use slipstack_channel::control::net::{FilterAction, FilterRule, Interface};
use slipstack_device::{Device, loopback};
use slipstack_stack::StackConfig;

use super::*;
use slipstack_channel::{SocketError, Transport};

use crate::authority::{PortAuthority, PortClaim};
use crate::engine::Setup;

/// The network it returns, whether its filter is available, and how often it was asked.
#[derive(Debug, Default)]
struct Keeper {
    network: NetworkState,
    is_silent: bool,
    asked: usize,
}

struct KeeperStub(Arc<Mutex<Keeper>>);

impl PortAuthority for KeeperStub {
    fn lease_ports(&self) -> Option<(u16, u16)> {
        None
    }

    fn listen_on(&self, _: &PortClaim, _: Transport) -> Result<(), SocketError> {
        Ok(())
    }

    fn network(&self) -> Option<NetworkState> {
        Some(self.0.lock().unwrap().network.clone())
    }

    fn filter(&self, _: &[u64]) -> Option<FilterReceived> {
        let mut keeper = self.0.lock().unwrap();
        keeper.asked += 1;
        let rule = FilterRule {
            id: keeper.network.filter,
            ..FilterRule::new(100, FilterAction::Deny)
        };
        (!keeper.is_silent).then(|| FilterReceived {
            rules: vec![rule],
            ..FilterReceived::default()
        })
    }

    fn listen_off(&self, _: (SocketAddr, u16), _: Transport, _: bool) {}
}

fn engine(keeper: &Arc<Mutex<Keeper>>) -> Engine {
    let (device, _) = loopback::pair(1500).unwrap();
    let setup = Setup {
        stack: StackConfig {
            mac: device.info().mac,
            ..StackConfig::default()
        },
        device: Box::new(device),
        directory: None,
        interconnect: None,
        ports: Some(Box::new(KeeperStub(keeper.clone()))),
        neighbours: None,
    };
    Engine::new(setup, Instant(1))
}

fn address(last: u8) -> (IpAddr, u8) {
    let address: SocketAddr = format!("10.0.0.{last}:0").parse().unwrap();
    (address.ip(), 24)
}

/// Announces a change of the network.
fn tell(engine: &mut Engine, keeper: &Mutex<Keeper>, change: impl FnOnce(&mut NetworkState)) {
    let mut it = keeper.lock().unwrap();
    it.network.revision += 1;
    change(&mut it.network);
    drop(it);
    engine.on_network_changed(engine.env.now);
}

fn rules(engine: &Engine) -> Vec<u64> {
    let ids = engine.stack.filter_counts().map(|(id, _)| id);
    // Without that of the packets that no rule decides on.
    ids.filter(|id| *id != 0).collect()
}

#[test]
fn rules_are_fetched_when_they_have_changed_and_again_when_they_could_not_be_had() {
    let keeper = Arc::new(Mutex::new(Keeper::default()));
    let mut engine = engine(&keeper);
    let asked = || keeper.lock().unwrap().asked;
    tell(&mut engine, &keeper, |network| {
        network.filter = 1;
        network.interfaces.push(Interface {
            addresses: vec![address(1)],
            ..Interface::default()
        });
    });
    assert_eq!((asked(), rules(&engine)), (1, vec![1]));
    tell(&mut engine, &keeper, |network| network.is_forwarding = true);
    tell(&mut engine, &keeper, |network| {
        network.interfaces[0].addresses.push(address(2));
    });
    assert_eq!(asked(), 1, "another change is not one of the rules");
    keeper.lock().unwrap().is_silent = true;
    tell(&mut engine, &keeper, |network| {
        network.filter = 5;
        network.interfaces[0].addresses.push(address(3));
    });
    assert_eq!((asked(), rules(&engine)), (2, vec![1]));
    assert_eq!(
        engine.network().addresses().len(),
        3,
        "the rest of it holds"
    );
    let again = engine.next_deadline().expect("it is tried again");
    engine.turn(Instant(again.0 - 1));
    assert_eq!(asked(), 2);
    engine.turn(again);
    assert_eq!((asked(), rules(&engine)), (3, vec![1]));
    keeper.lock().unwrap().is_silent = false;
    let again = engine.next_deadline().expect("and again");
    engine.turn(again);
    assert_eq!((asked(), rules(&engine)), (4, vec![5]));
    tell(&mut engine, &keeper, |network| network.filter = 0);
    assert_eq!((asked(), rules(&engine)), (4, vec![]));
}
