//! Runs the book's example.

#[path = "chat/chat.rs"]
mod chat;
mod world;

use std::net::SocketAddr;

use chat::Chat;
use slipstack_service::Hosting;
use world::{SERVER, World};

#[test]
fn lines_reach_all_other_clients_whole_and_in_order() {
    for seed in 0..4 {
        let chat = Chat::new(SocketAddr::new(SERVER.into(), 4000));
        let mut world = World::new(seed, 0.05, chat, Hosting::default());
        let (ann, bob) = (world.connect(4000), world.connect(4000));
        let hello = world.receive_line(ann);
        assert!(hello.ends_with(b" has come\n"), "{hello:?}");
        world.send(ann, b"hel");
        world.step();
        world.send(ann, b"lo\nhow are");
        let said = world.receive_line(bob);
        assert!(said.ends_with(b": hello\n"), "{said:?}");
        world.send(ann, b" you?\n");
        let said = world.receive_line(bob);
        assert!(said.ends_with(b": how are you?\n"), "{said:?}");
        world.close(ann);
        let gone = world.receive_line(bob);
        assert!(gone.ends_with(b" has gone\n"), "{gone:?}");
    }
}
