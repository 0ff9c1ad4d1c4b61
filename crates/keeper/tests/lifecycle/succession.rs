//! Keepers and standbys die, and their successors take over.

use super::*;

pub fn killed_keeper() {
    let mut running = Running::start("succession");
    let (socket, welcome) = greet(&running.control(), 1);
    lease(&socket);
    assert_eq!(ask(&socket, &listen_on(80)), Reply::Done);
    for _ in 0..3 {
        let (admin, _) = greet(&running.control(), 99);
        let keeper_pid = status(&admin).keeper_pid;
        let pid = rustix::process::Pid::from_raw(keeper_pid as i32).expect("pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
        let _ = admin.receive::<Reply>(2000).expect_err("hangs up");
        let began = Instant::now();
        let (again, _) = greet(&running.control(), 98);
        assert!(began.elapsed() < Duration::from_millis(500));
        let report = status(&again);
        assert_ne!(report.keeper_pid, keeper_pid);
        assert_eq!(report.engines.len(), 1);
        assert!(is_refused(
            &ask(&again, &listen_on(80)),
            Refusal::AddressInUse
        ));
    }
    let _ = running.child.wait();
    let back = connect(&running.control()).expect("connect");
    assert!(matches!(
        ask(&back, &hello(1, Some(welcome.client))),
        Reply::Welcome(_)
    ));
    assert_eq!(ask(&back, &listen_on(81)), Reply::Done);
    assert_eq!(ask(&back, &Request::EndSession), Reply::Done);
    drop((socket, back));
    running.left_nothing();
}

pub fn standby_in_time() {
    let running = Running::start("alone");
    let (client, _) = greet(&running.control(), 1);
    let standby = status(&client).standby_pid.expect("standby");
    take_descriptors(running.child.id());
    let pid = keeper_process(standby);
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
    wait_until("there is none", || status(&client).standby_pid.is_none());
    limit_descriptors(running.child.id(), Some(1024));
    wait_until("there is one", || status(&client).standby_pid.is_some());
    drop(client);
    running.ends_cleanly();
}

pub fn successor_without_descriptors() {
    let mut running = Running::start("heir");
    let (client, _) = greet(&running.control(), 1);
    let report = status(&client);
    take_descriptors(report.standby_pid.expect("standby"));
    running.child.kill().expect("kill");
    running.child.wait().expect("wait");
    drop(client);
    running.left_nothing();
}

pub fn standby_that_dies() {
    let running = Running::start("storm");
    let (client, _) = greet(&running.control(), 1);
    let began = Instant::now();
    let mut killed = 0;
    while began.elapsed() < Duration::from_millis(2500) {
        if let Some(standby) = status(&client).standby_pid {
            let pid = keeper_process(standby);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
            wait_until("it is gone", || {
                status(&client).standby_pid != Some(standby)
            });
            killed += 1;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!((1..=4).contains(&killed), "{killed} standbys");
    wait_until("there is one", || status(&client).standby_pid.is_some());
    drop(client);
    running.ends_cleanly();
}
