//! Engines that are killed while a connection goes from one to the other.

use slipstack_stack::{CloseMode, ConnId};

use super::machine::bad_link;
use super::setting::{MS, PORT, SECOND, Setting};
use crate::link::LinkParams;
use crate::machine::Giving;
use crate::program::WritePattern;
use crate::world::{Ending, Failure};

/// The keeper resets a peer within this time, on a link that loses nothing.
const RESET_NS: u64 = SECOND;

/// The steps after the connection has been marked as leaving. The taker may find it in its inbox
/// before the giver has forgotten it.
const ORDERS: [(Giving, [Step; 5]); 3] = [
    (
        Giving::Passed,
        [
            Step::Detach,
            Step::Post,
            Step::Close,
            Step::Take,
            Step::Release,
        ],
    ),
    (
        Giving::Passed,
        [
            Step::Detach,
            Step::Post,
            Step::Take,
            Step::Close,
            Step::Release,
        ],
    ),
    (
        Giving::Carried,
        [
            Step::Detach,
            Step::Post,
            Step::Take,
            Step::Close,
            Step::Release,
        ],
    ),
];

/// A connection that may be given, and another engine.
type Traveller = ((usize, ConnId), usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Detach,
    Post,
    Take,
    Close,
    Release,
}

/// The engines that are killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victims {
    Giver,
    Taker,
    Both,
}

/// Outcome for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    GoesOn,
    /// The peer is told of its end.
    Ends,
    /// One of the two.
    Any,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    giving: Giving,
    steps: [Step; 5],
    /// Steps before the kill.
    done: usize,
    victims: Victims,
}

impl Plan {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for (giving, steps) in ORDERS {
            for done in 0..=steps.len() {
                // The engine is locked from the mark to the end of the first step.
                if giving == Giving::Carried && done == 0 {
                    continue;
                }
                for victims in [Victims::Giver, Victims::Taker, Victims::Both] {
                    all.push(Self {
                        giving,
                        steps,
                        done,
                        victims,
                    });
                }
            }
        }
        all
    }

    fn has_done(&self, step: Step) -> bool {
        self.steps[..self.done].contains(&step)
    }

    fn fate(&self) -> Fate {
        let is_taken = self.has_done(Step::Take);
        match (self.giving, self.victims) {
            (_, Victims::Giver) => Fate::GoesOn,
            (_, Victims::Taker) if !is_taken => Fate::GoesOn,
            // A third engine listens, if no program has used it by then.
            (Giving::Passed, _) => Fate::Any,
            (Giving::Carried, _) => Fate::Ends,
        }
    }
}

pub fn giving_killed(setting: &mut Setting) -> Result<(), Failure> {
    let all = Plan::all();
    let plan = all[setting.between(0, all.len() as u64 - 1) as usize];
    play(setting, plan)
}

fn play(setting: &mut Setting, plan: Plan) -> Result<(), Failure> {
    let is_clean = setting.is_once_in(2);
    let link = bad_link(setting);
    setting.set_link(match is_clean {
        true => LinkParams {
            delay_ns: link.delay_ns,
            ..LinkParams::default()
        },
        false => link,
    });
    let (machine, engines) = setting.put_machine(3);
    setting.world.share_port(machine, PORT, &engines)?;
    setting.world.waits_for_accepts = false;
    for number in 0..setting.between(1, 4) as u16 {
        connect(setting, plan.giving, number)?;
    }
    let Some((place, other)) = find_traveller(setting, machine, &engines)? else {
        return setting.run();
    };
    let ends = setting.world.hosts[place.0].stack.tcp_endpoints(place.1);
    if plan.giving == Giving::Passed {
        setting.world.leave_port(machine, PORT, place.0)?;
    }
    let taker = setting.world.begin_journey(place, other, plan.giving);
    let (Some((local, remote)), Some(taker)) = (ends, taker) else {
        return setting.run();
    };
    setting.report.moved += 1;
    go(setting, machine, &plan.steps[..plan.done])?;
    kill(setting, (place.0, taker), plan.victims)?;
    go(setting, machine, &plan.steps[plan.done..])?;
    setting.world.must_hold(machine);
    match plan.fate() {
        Fate::GoesOn => setting.world.must_hold_between(local, remote),
        Fate::Ends if is_clean => {
            setting.world.run_for(RESET_NS)?;
            setting.world.check_knows_of_end(remote, local)?;
        }
        Fate::Ends | Fate::Any => {}
    }
    setting.run()
}

/// Connects two programs: both send and receive, are silent, or the server's has not looked at the
/// connection yet.
fn connect(setting: &mut Setting, giving: Giving, number: u16) -> Result<(), Failure> {
    // Only a reset tells a silent peer of the end.
    let is_silent = giving == Giving::Carried && setting.is_once_in(3);
    let most = if is_silent { 1 } else { 300_000 };
    let (up, down) = (setting.between(1, most), setting.between(1, most));
    let (mut client, mut server) = setting.tasks(up, down);
    client.ends_last = is_silent || (giving == Giving::Carried && setting.is_once_in(2));
    server.ends_last = is_silent || !client.ends_last;
    if is_silent {
        let leaves_ns = setting.between(10 * SECOND, 100 * SECOND);
        let leaves_at = setting.world.now.plus_nanos(leaves_ns);
        client.gives_up = Some((leaves_at, CloseMode::Orderly));
    }
    if giving == Giving::Passed {
        let later_ns = setting.between(SECOND, 20 * SECOND);
        server.reads_from = setting.world.now.plus_nanos(later_ns);
        server.rhythm = WritePattern::Turns {
            every: 1,
            burst: down,
            first: false,
        };
    }
    for task in [&mut client, &mut server] {
        task.may_die = true;
        task.chunk_max = 1 << setting.between(8, 16);
        task.pause_ns_max = setting.between(0, 1) * setting.between(0, 20 * MS);
    }
    setting.connect(number, client, server)
}

/// Lets time pass until there is a connection to give; returns it and another engine.
fn find_traveller(
    setting: &mut Setting,
    machine: usize,
    engines: &[usize],
) -> Result<Option<Traveller>, Failure> {
    let before_ns = 1 << setting.between(20, 28);
    setting.world.run_for(before_ns)?;
    for _ in 0..200 {
        let all = setting.world.connections_of(machine);
        if !all.is_empty() {
            let place = all[setting.between(0, all.len() as u64 - 1) as usize];
            let others = engines.iter().filter(|of| **of != place.0);
            let others: Vec<usize> = others.copied().collect();
            let other = others[setting.between(0, others.len() as u64 - 1) as usize];
            return Ok(Some((place, other)));
        }
        setting.world.run_for(5 * MS)?;
    }
    Ok(None)
}

fn go(setting: &mut Setting, machine: usize, steps: &[Step]) -> Result<(), Failure> {
    for step in steps {
        let steered_ns = setting.between(0, 1) * setting.between(0, 20 * MS);
        let world = &mut setting.world;
        match step {
            Step::Detach => world.detach_journey(machine)?,
            Step::Post => world.post_journey(machine)?,
            Step::Take => world.take_journey(machine, steered_ns)?,
            Step::Close => world.close_journey(machine)?,
            Step::Release => world.release_journey(machine)?,
        }
        let pause_ns = setting.between(0, 1) * (1 << setting.between(10, 25));
        setting.world.run_for(pause_ns)?;
    }
    Ok(())
}

fn kill(
    setting: &mut Setting,
    (giver, taker): (usize, usize),
    victims: Victims,
) -> Result<(), Failure> {
    let victims = match victims {
        Victims::Giver => vec![giver],
        Victims::Taker => vec![taker],
        Victims::Both if setting.is_once_in(2) => vec![giver, taker],
        Victims::Both => vec![taker, giver],
    };
    for victim in victims {
        let notice_ns = setting.between(0, 5 * MS);
        setting.world.end_engine(victim, Ending::Crash, notice_ns)?;
    }
    let after_ns = setting.between(0, 1) * setting.between(0, 10 * MS);
    setting.world.run_for(after_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The family's worlds are any of these.
    #[test]
    fn engines_are_killed_at_every_step_of_both_ways() {
        for (number, plan) in Plan::all().into_iter().enumerate() {
            for seed in [number as u64, 1_000 + number as u64] {
                let mut setting = Setting::new(seed, None, false).unwrap();
                let played = play(&mut setting, plan);
                if let Err(failure) = played.and_then(|()| setting.finish().map(drop)) {
                    panic!("{plan:?}, seed {seed}: {}", failure.message);
                }
            }
        }
    }
}
