//! Families of worlds: events that can happen to connections, with one variant for each seed.
//!
//! A family builds a world from a seed, lets it run through its events, and requires that it comes
//! to rest; the checkers of [`crate::checks`] watch after each step. A failure is identified by its
//! family and seed.

mod crowd;
mod machine;
mod path;
mod peers;
mod setting;
mod time;
mod transfer;

use std::path::PathBuf;

use crate::scenario::Report;
use crate::world::Failure;
use setting::Setting;

/// A kind of world.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    pub name: &'static str,
    /// The story of the world.
    pub story: &'static str,
    play: fn(&mut Setting) -> Result<(), Failure>,
}

macro_rules! families {
    ($($module:ident::$name:ident $story:literal)*) => {
        pub const FAMILIES: &[Family] = &[
            $(Family { name: stringify!($name), story: $story, play: $module::$name },)*
        ];
    };
}

families! {
    transfer::bulk_up "one large stream from the client, over any kind of link"
    transfer::bulk_down "one large stream from the server"
    transfer::both_ways "both sides send at once"
    transfer::request_response "questions and answers, many in turn"
    transfer::reordering_bursts "a link that overtakes and doubles far more than it loses"
    crowd::short_connections "hundreds to thousands of short connections, one after the other and \
        at once"
    crowd::mass_close "hundreds of open connections are closed or aborted at one moment"
    crowd::listen_overflow "more handshakes than the accept queue takes, while the program sleeps"
    crowd::shared_bottleneck "several senders share one slow link with a short queue"
    path::partition "the link is cut, several times, and heals"
    path::mtu_drop "the path changes to one with a smaller MTU, and routers say so"
    path::mtu_search "the path's MTU falls and grows, no router says so, and the hosts search for \
        it"
    path::nat_rebinding "a NAT forgets a connection and gives it another port"
    peers::never_reads "a peer whose program does not read, and then leaves"
    peers::zero_window "a peer whose program sleeps for minutes and then reads on"
    peers::vanishes "a peer that is gone from one moment to the next"
    peers::simultaneous_open "both sides connect to each other"
    peers::simultaneous_close "both sides close at the same moment"
    machine::moving "connections of a host of several engines move between them, at any phase, \
        over a bad link"
    machine::dying "engines of such a host die without a word, or end in order, and their keeper \
        sees to their connections"
    machine::many_engines "engines of a host of up to 64 are slow, stand still, end or die, while \
        others connect"
    time::clock_jump "one host's clock leaps ahead"
    time::pause "one host stands still for up to a minute and wakes up to a full ring"
}

impl Family {
    pub fn find(name: &str) -> Option<&'static Family> {
        FAMILIES.iter().find(|family| family.name == name)
    }

    /// Plays the world of one seed; its frames go to `pcap`.
    pub fn run(&self, seed: u64, pcap: Option<PathBuf>) -> Result<Report, Failure> {
        self.play_in(Setting::new(seed, pcap, false)?)
    }

    /// Plays it between the second interfaces of hosts that have two.
    pub fn run_on_second_port(&self, seed: u64, pcap: Option<PathBuf>) -> Result<Report, Failure> {
        self.play_in(Setting::new(seed, pcap, true)?)
    }

    fn play_in(&self, mut setting: Setting) -> Result<Report, Failure> {
        (self.play)(&mut setting)?;
        setting.finish()
    }
}
