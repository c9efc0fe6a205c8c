"""Gatekeepers by libzmq. Each scenario ends by itself, or fails."""

import sys
import time

import zmq

ACCOUNTING, CONTROL, SCENARIO = sys.argv[1:]
PATIENCE = 20_000
context = zmq.Context()


def publisher():
    socket = context.socket(zmq.PUB)
    socket.setsockopt(zmq.LINGER, PATIENCE)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, 20)
    socket.connect(ACCOUNTING)
    return socket


def subscriber(*topics, **options):
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.RCVTIMEO, PATIENCE)
    socket.setsockopt(zmq.RCVHWM, options.get("hwm", 0))
    socket.setsockopt(zmq.RECONNECT_IVL, 20)
    for topic in topics:
        socket.subscribe(topic)
    socket.connect(CONTROL)
    return socket


def accepted(identifier, domain=b"web\0", time=b"0", rest=(b"", b"")):
    return [domain, b"ACCEPTED", identifier, time, *rest]


def delay(identifier, until=b"1000", domain=b"web\0"):
    return [domain, b"DELAY_UNTIL", identifier, until]


def meet(sender, receiver, name):
    """Sends until something is heard: ZeroMQ connects, and reconnects, in the background."""
    deadline = time.monotonic() + PATIENCE / 1000
    number = 0
    while time.monotonic() < deadline:
        sender.send_multipart(accepted(b"%s %d" % (name, number)))
        number += 1
        if receiver.poll(50):
            break
    # The last of them is the last to be heard of.
    last = b"%s %d" % (name, number - 1)
    while receiver.recv_multipart()[2] != last:
        pass


def says_and_hears():
    sender, receiver = publisher(), subscriber(b"web\0")
    meet(sender, receiver, b"meet")
    for identifier in [b"10.0.0.1", b"", b"\xff\xfe", b"a\0b", b"x" * 60_000]:
        sender.send_multipart(accepted(identifier))
        assert receiver.recv_multipart() == delay(identifier)
    sender.send_multipart([b"web\0", b"DELAYED", b"10.0.0.1", b"100", b"1000.5", b"curl"])
    assert receiver.recv_multipart() == delay(b"10.0.0.1", b"2000")


def odd_frames():
    sender, receiver = publisher(), subscriber(b"")
    meet(sender, receiver, b"meet")
    for message in [
        [b""],
        [b"web\0"],
        [b"web\0", b"ACCEPTED", b"odd", b"0"],
        [b"\xff\xfe\0", b"ACCEPTED", b"odd", b"0", b"", b""],
        [b"web\0", b"\xff", b"odd", b"0", b"", b""],
        [b"", b"", b"", b"", b"", b""],
        accepted(b"odd", time=b""),
        accepted(b"odd", time=b"NaN"),
        accepted(b"odd", time=b"-1"),
        accepted(b"odd", time=b"\xff"),
        accepted(b"odd", time=b"9" * 10_000),
        [b"web\0", b"REJECTED", b"odd", b"0", b"", b""],
    ]:
        sender.send_multipart(message)
    sender.send_multipart(accepted(b"even", rest=[b"", b"\xff" * 1_000] + [b"more"] * 1_000))
    assert receiver.recv_multipart() == delay(b"even")
    # Too long to be kept: the master hangs up, and libzmq comes back.
    sender.send_multipart(accepted(b"huge", rest=[b"", b"x" * 10_000_000]))
    meet(sender, receiver, b"again")


def stops_reading():
    sender, receiver, deaf = publisher(), subscriber(b"web\0"), subscriber(b"web\0", hwm=1)
    meet(sender, receiver, b"meet")
    meet(sender, deaf, b"deaf")
    while receiver.poll(0):
        receiver.recv_multipart()
    padding = b"x" * 10_000
    for number in range(2_000):
        sender.send_multipart(accepted(b"%d %s" % (number, padding)))
        message = receiver.recv_multipart()
        while not message[2].startswith(b"%d " % number):
            message = receiver.recv_multipart()


def comes_late():
    sender, receiver = publisher(), subscriber(b"web\0")
    meet(sender, receiver, b"meet")
    for number in range(1_000):
        sender.send_multipart(accepted(b"late %d" % number))
        receiver.recv_multipart()
    late = subscriber(b"web\0")
    wanted = {b"late %d" % number for number in range(1_000)}
    while wanted:
        wanted.discard(late.recv_multipart()[2])


def comes_back():
    sender, receiver = publisher(), subscriber(b"web\0")
    meet(sender, receiver, b"before")
    print("met", flush=True)
    assert sys.stdin.readline() == "restarted\n"
    meet(sender, receiver, b"after")


globals()[SCENARIO]()
context.destroy(linger=0)
