//! Ends of records (MSG_EOR).

use alloc::vec::Vec;

use super::harness::*;
use crate::SocketOption;

fn set(world: &mut World, option: SocketOption) {
    let (now, conn) = (world.now, world.conn.unwrap());
    let set = world.stack.tcp_set_option(now, conn, option, &mut world.fx);
    assert_eq!(set, Ok(()));
}

fn end_record(world: &mut World, upto: u64) {
    world.stack.tcp_end_record(world.conn.unwrap(), upto);
}

fn lengths(world: &mut World) -> Vec<u32> {
    world.take_sent().iter().map(Sent::len).collect()
}

#[test]
fn bytes_behind_a_record_do_not_join_it_and_it_does_not_wait_for_them() {
    let mut world = established();
    set(&mut world, SocketOption::Cork(true));
    end_record(&mut world, 100);
    end_record(&mut world, 130);
    world.write(150);
    assert_eq!(lengths(&mut world), [100, 30]);
    set(&mut world, SocketOption::Cork(false));
    world.acknowledge(130);
    world.flush();
    assert_eq!(lengths(&mut world), [20]);
}

#[test]
fn the_last_record_waits_as_other_data_does() {
    let mut world = established();
    world.write(10);
    assert_eq!(lengths(&mut world), [10]);
    end_record(&mut world, 30);
    world.write(30);
    assert_eq!(lengths(&mut world), []);
    world.write(60);
    assert_eq!(lengths(&mut world), [20]);
}

#[test]
fn a_record_of_many_segments_ends_with_a_short_one() {
    let mut world = established();
    set(&mut world, SocketOption::Cork(true));
    end_record(&mut world, 5_100);
    world.write(5_300);
    let sent: u32 = lengths(&mut world).iter().sum();
    assert_eq!(sent, 5_100);
}
