//! Transfers from one side to the other.

use super::setting::{MS, PORT, Setting};
use crate::link::{LinkParams, Share};
use crate::program::WritePattern;
use crate::world::Failure;

const BULK_MAX: u64 = 1_500_000;

fn bulk(setting: &mut Setting, up: u64, down: u64) -> Result<(), Failure> {
    setting.world.listen(1, PORT)?;
    let (client, server) = setting.tasks(up, down);
    setting.connect(0, client, server)?;
    setting.run()
}

pub fn bulk_up(setting: &mut Setting) -> Result<(), Failure> {
    let up = setting.between(1, BULK_MAX);
    bulk(setting, up, 0)
}

pub fn bulk_down(setting: &mut Setting) -> Result<(), Failure> {
    let down = setting.between(1, BULK_MAX);
    bulk(setting, 0, down)
}

pub fn both_ways(setting: &mut Setting) -> Result<(), Failure> {
    let (up, down) = (
        setting.between(1, BULK_MAX / 2),
        setting.between(1, BULK_MAX / 2),
    );
    bulk(setting, up, down)
}

pub fn request_response(setting: &mut Setting) -> Result<(), Failure> {
    setting.world.listen(1, PORT)?;
    for number in 0..setting.between(1, 8) as u16 {
        let (ask, answer) = (setting.between(1, 3000), setting.between(1, 20_000));
        let turns = setting.between(1, 30);
        let (mut client, mut server) = setting.tasks(ask * turns, answer * turns);
        client.rhythm = WritePattern::Turns {
            every: answer,
            burst: ask,
            first: true,
        };
        server.rhythm = WritePattern::Turns {
            every: ask,
            burst: answer,
            first: false,
        };
        setting.connect(number, client, server)?;
    }
    setting.run()
}

pub fn reordering_bursts(setting: &mut Setting) -> Result<(), Failure> {
    let params = LinkParams {
        reordering: Share::percent(setting.between(1, 50) as u32),
        reorder_ns: setting.between(1, 80 * MS),
        duplication: Share::percent(setting.between(0, 20) as u32),
        ..setting.link()
    };
    setting.set_link(params);
    let (up, down) = (setting.between(1, 300_000), setting.between(0, 300_000));
    bulk(setting, up, down)
}
