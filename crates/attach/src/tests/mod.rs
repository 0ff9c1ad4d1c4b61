//! Decisions of programs, tested against a keeper or an instance that answers by a script.

mod client;
mod doors;
mod launch;
mod starting;
mod succession;

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SocketFlags, accept_with};
use slipstack_channel::control::net::{Interface, NetworkState};
use slipstack_channel::control::{
    ControlSocket, DeviceSummary, Hello, Refusal, Reply, Request, Welcome, listen, pair,
};
use slipstack_config::Settings;

/// Longest wait of a script for its next question.
const PATIENCE_MS: u64 = 20_000;

/// The reaction to a request.
pub enum Step {
    Say(Reply),
    SayWith(Reply, Vec<OwnedFd>),
    HangUp,
}

impl Step {
    pub fn refuse(refusal: Refusal) -> Step {
        let message = format!("{refusal:?} by the script");
        Step::Say(Reply::Refused { refusal, message })
    }
}

/// A keeper or an instance, and the requests it got.
#[derive(Clone)]
pub struct Script {
    asked: Arc<Mutex<Vec<Request>>>,
    step: Arc<dyn Fn(&Request) -> Step + Send + Sync>,
}

impl Script {
    pub fn new(step: impl Fn(&Request) -> Step + Send + Sync + 'static) -> Script {
        Script {
            asked: Arc::default(),
            step: Arc::new(step),
        }
    }

    /// A script that admits every program and grants every request.
    pub fn willing() -> Script {
        Script::new(|request| match request {
            Request::Hello(_) => Step::Say(Reply::Welcome(Box::new(welcome()))),
            Request::Network => Step::Say(Reply::Network(Box::new(welcome().network))),
            _ => Step::Say(Reply::Done),
        })
    }

    /// The connection that a program inherits.
    pub fn inherited(&self) -> OwnedFd {
        let (theirs, ours) = pair().expect("pair");
        self.clone().serve(ours);
        theirs.into_fd()
    }

    /// Serves every client of the socket at `path`.
    pub fn listen(&self, path: &Path) {
        let door = listen(path).expect("listen");
        let script = self.clone();
        std::thread::spawn(move || {
            loop {
                let waited = poll(&mut [PollFd::new(&door, PollFlags::IN)], None);
                let Ok(client) = waited.and_then(|_| accept_with(&door, SocketFlags::CLOEXEC))
                else {
                    return;
                };
                let client = ControlSocket::from_fd(client).expect("a control socket");
                script.clone().serve(client);
            }
        });
    }

    fn serve(self, socket: ControlSocket) {
        std::thread::spawn(move || {
            while let Ok((request, fds)) = socket.receive::<Request>(PATIENCE_MS) {
                if let (Request::NewClient, Some(fd)) = (&request, fds.into_iter().next()) {
                    let client = ControlSocket::from_fd(fd).expect("a control socket");
                    self.clone().serve(client);
                    continue;
                }
                let step = (self.step)(&request);
                self.asked.lock().expect("asked").push(request);
                let said = match step {
                    Step::Say(reply) => socket.send(&reply, &[]),
                    Step::SayWith(reply, fds) => {
                        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                        socket.send(&reply, &fds)
                    }
                    Step::HangUp => return,
                };
                if said.is_err() {
                    return;
                }
            }
        });
    }

    pub fn asked(&self) -> Vec<Request> {
        self.asked.lock().expect("asked").clone()
    }

    pub fn hellos(&self) -> Vec<Hello> {
        let asked = self.asked().into_iter();
        let hello = |request| match request {
            Request::Hello(hello) => Some(hello),
            _ => None,
        };
        asked.filter_map(hello).collect()
    }
}

/// The welcome of a keeper whose stack is 10.0.0.5 on eth1.
pub fn welcome() -> Welcome {
    Welcome {
        client: 7,
        capability: 8,
        keeper_pid: 9,
        interface: "eth1".to_owned(),
        device: DeviceSummary {
            kind: "packet".to_owned(),
            title: "interface".to_owned(),
            ..DeviceSummary::default()
        },
        vlan: 0,
        network: NetworkState {
            interfaces: vec![Interface {
                name: "eth1".to_owned(),
                mtu: 1500,
                addresses: vec![([10, 0, 0, 5].into(), 24)],
                ..Interface::default()
            }],
            ..NetworkState::default()
        },
        is_unused: false,
    }
}

/// The settings of these variables, without `SLIPSTACK_` in front.
pub fn settings(variables: &[(&str, &str)]) -> Settings {
    let known: HashMap<String, String> = variables
        .iter()
        .map(|(name, value)| (format!("SLIPSTACK_{name}"), (*value).to_owned()))
        .collect();
    Settings::from_variables(|name| known.get(name).cloned()).expect("settings")
}

/// The settings of a program on eth1, with a run directory of its own.
pub fn on_eth1(folder: &Folder) -> Settings {
    Settings {
        run_dir: Some(folder.0.clone()),
        ..settings(&[("IF", "eth1"), ("IP", "10.0.0.5/24")])
    }
}

/// Settings that have inherited this connection.
pub fn with_connection(settings: Settings, control: &OwnedFd) -> Settings {
    Settings {
        control_fds: vec![control.as_raw_fd()],
        ..settings
    }
}

/// A directory that goes with its test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(topic: &str) -> Folder {
        let name = format!("slipstack-attach-{topic}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
