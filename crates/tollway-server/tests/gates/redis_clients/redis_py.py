"""Asks a server with redis-py, and prints the replies as JSON. Arguments: the port, and the version of the protocol."""

import json
import sys

import redis

port, version = (int(argument) for argument in sys.argv[1:])
client = redis.Redis(port=port, protocol=version, decode_responses=True)


def ask_both(transaction):
    pipeline = client.pipeline(transaction=transaction)
    pipeline.execute_command("CL.THROTTLE", "key", 15, 30, 60)
    pipeline.execute_command("THROTTLE", "other", 15, 30, 60)
    return pipeline.execute()


replies = [
    client.execute_command("CL.THROTTLE", "key", 15, 30, 60),
    client.execute_command("THROTTLE", "other", 15, 30, 60),
    client.execute_command("TOLL", "SPEND", "Login", "alice"),
    client.execute_command("TOLL", "SPEND", "Login", "alice", 1, "RULE", "upload", b"user=\xff=", "RULE", "closed"),
    ask_both(transaction=False),
    ask_both(transaction=True),
]
try:
    client.execute_command("CL.THROTTLE", "key", "x", 30, 60)
except redis.ResponseError as error:
    replies.append(str(error))
replies.append(client.execute_command("ECHO", "done"))
print(json.dumps(replies))
