"""Servers in Ruby."""

import os
import signal

from harness.process import descendants, until
from page import Outcome, entry
from page import tools

APP = """require 'digest'
run lambda { |env|
  body = env['rack.input'].read
  posted = env['REQUEST_METHOD'] == 'POST'
  what = posted ? Digest::SHA256.hexdigest(body) : File.binread('FOLDER/big.bin')
  [200, {'content-type' => 'text/plain', 'content-length' => what.bytesize.to_s}, [what]]
}
"""


def rack(world):
    app, path = world.folder / "config.ru", tools.blob(world)
    app.write_text(APP.replace("FOLDER", str(world.folder)))
    return app, path


def both_ways(world, path):
    url = f"http://{world.address}:8080"
    for _ in range(4):
        tools.fetch(world, f"{url}/big.bin", path)
        tools.upload(world, f"{url}/up", path)


@entry("unicorn, two workers, HUP, USR2", packages="unicorn", timeout=120)
def unicorn(world):
    app, path = rack(world)
    conf, number = world.folder / "unicorn.rb", world.folder / "pid"
    conf.write_text(
        f"worker_processes 2\nlisten '{world.address}:8080'\npid '{number}'\ntimeout 20\n"
        f"working_directory '{world.folder}'\n"
    )
    for _ in range(2):
        server = world.stack("unicorn", "-c", conf, app)
        world.wait_port(8080, 20, process=server)
        both_ways(world, path)
        before = set(descendants(server.pid))
        server.signal(signal.SIGHUP)
        both_ways(world, path)
        until(lambda: not before & set(descendants(server.pid)), 20, "the workers are replaced")
        server.signal(signal.SIGUSR2)
        new = until(lambda: other(number, server.pid), 30, "another master is there")
        world.strays.append(lambda new=new: os.path.exists(f"/proc/{new}/exe") and new)
        both_ways(world, path)
        until(lambda: len(descendants(new)) >= 2, 20, "it has workers")
        server.signal(signal.SIGQUIT)
        both_ways(world, path)
        server.wait(10)
        both_ways(world, path)
        os.kill(new, signal.SIGTERM)
        until(lambda: not os.path.exists(f"/proc/{new}/exe"), 10, "the other master has ended")
    return Outcome("3 MB down, 3 MB up, 40 times, and under each change")


def other(file, pid):
    """The number in the file, if it is another."""
    text = file.read_text().strip() if file.exists() else ""
    return int(text) if text not in ("", str(pid)) else 0


@entry("thin (EventMachine)", packages="thin")
def thin(world):
    app, path = rack(world)
    for _ in range(2):
        server = world.stack("thin", "-R", app, "-a", world.address, "-p", 8080, "start")
        world.wait_port(8080, 20, process=server)
        both_ways(world, path)
        server.stop()
    return Outcome("3 MB down, 3 MB up, eight times")
