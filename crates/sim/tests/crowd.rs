//! Many connections in one stack keep their cost.

use slipstack_sim::crowd::Crowd;

#[test]
fn each_of_many_connections_is_answered() {
    const CONNECTIONS: u32 = 60_000;
    let mut crowd = Crowd::new(CONNECTIONS).unwrap();
    assert_eq!(crowd.established(), CONNECTIONS as usize);
    for step in 0..3 * CONNECTIONS {
        crowd.round(step.wrapping_mul(7919) % CONNECTIONS).unwrap();
    }
    assert_eq!(crowd.established(), CONNECTIONS as usize);
}
