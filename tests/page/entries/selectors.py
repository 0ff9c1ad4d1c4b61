"""Programs whose threads wait in selectors of their own for connections that another has accepted.
"""

import os

from page import Outcome, entry
from page import tools

CONNECTIONS, EACH = 16, 200_000

ECHO = """import java.net.*; import java.nio.*; import java.nio.channels.*;
import java.util.concurrent.*;
public class Echo {
    static class Reactor extends Thread {
        final Selector selector;
        final ConcurrentLinkedQueue<SocketChannel> fresh = new ConcurrentLinkedQueue<>();
        Reactor() throws Exception { selector = Selector.open(); }
        public void run() {
            try { while (true) turn(); }
            catch (Exception e) { e.printStackTrace(); System.exit(1); }
        }
        void turn() throws Exception {
            selector.select();
            for (SocketChannel channel; (channel = fresh.poll()) != null; )
                channel.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(65536));
            for (SelectionKey key : selector.selectedKeys()) serve(key);
            selector.selectedKeys().clear();
        }
        void serve(SelectionKey key) throws Exception {
            SocketChannel channel = (SocketChannel) key.channel();
            ByteBuffer bytes = (ByteBuffer) key.attachment();
            if (channel.read(bytes) < 0 && bytes.position() == 0) { channel.close(); return; }
            bytes.flip();
            channel.write(bytes);
            bytes.compact();
            int reads = bytes.hasRemaining() ? SelectionKey.OP_READ : 0;
            key.interestOps(reads | (bytes.position() > 0 ? SelectionKey.OP_WRITE : 0));
        }
    }
    public static void main(String[] words) throws Exception {
        Reactor[] reactors = {new Reactor(), new Reactor()};
        for (Reactor reactor : reactors) reactor.start();
        ServerSocketChannel server = ServerSocketChannel.open();
        server.bind(new InetSocketAddress("0.0.0.0", 7000), 128);
        for (int turn = 0; ; turn = 1 - turn) {
            SocketChannel channel = server.accept();
            channel.configureBlocking(false);
            reactors[turn].fresh.add(channel);
            reactors[turn].selector.wakeup();
        }
    }
}
"""


@entry("JVM, NIO, two selectors", packages="openjdk-17-jdk-headless", timeout=120)
def nio(world):
    source = world.folder / "Echo.java"
    source.write_text(ECHO)
    world.beside("javac", "-d", world.folder, source).finish(60)
    server = world.stack("java", "-Xmx256m", "-cp", world.folder, "Echo")
    world.wait_port(7000, process=server)
    socks = [world.connect(7000) for _ in range(CONNECTIONS)]
    for sock in socks + socks:
        tools.echo(sock, os.urandom(EACH))

    def call():
        socks[0].sendall(b"x" * 64)
        tools.receive(socks[0], 64)

    total = 2 * CONNECTIONS * EACH / 1e6
    outcome = Outcome(f"{total} MB echoed, 16 connections", tools.calls(world, call), "echoes/s")
    for sock in socks:
        sock.close()
    return outcome
