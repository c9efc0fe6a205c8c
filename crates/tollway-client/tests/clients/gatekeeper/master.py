"""A master by libzmq: prints what it hears, and publishes what it is told to. A line is a message, as a list of frames."""

import json
import os
import sys
import threading

import zmq

# A test that fails must not leave this behind, nor wait for it for ever.
watchdog = threading.Timer(30, os._exit, [1])
watchdog.daemon = True
watchdog.start()
accounting_port, control_port = map(int, sys.argv[1:])
context = zmq.Context()


def bound(kind, port):
    """Listens at this port, or at one that the system chooses."""
    socket = context.socket(kind)
    socket.bind(f"tcp://127.0.0.1:{port or '*'}")
    return socket, int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rsplit(":", 1)[1])


accounting, accounting_port = bound(zmq.SUB, accounting_port)
control, control_port = bound(zmq.XPUB, control_port)
accounting.subscribe(b"")
# Only what is subscribed to is sent, so the first line waits for that.
print(json.dumps([str(accounting_port), str(control_port)]), flush=True)
topic = control.recv()
print(json.dumps(["subscribed", topic.decode("latin-1")]), flush=True)


def publish():
    for line in sys.stdin:
        control.send_multipart([frame.encode("latin-1") for frame in json.loads(line)])


threading.Thread(target=publish, daemon=True).start()
while True:
    frames = accounting.recv_multipart()
    print(json.dumps([frame.decode("latin-1") for frame in frames]), flush=True)
