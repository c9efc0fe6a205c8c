"""The examples, as somebody would run them."""

import asyncio
import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import threading

import httpx
import pytest
from conftest import ROOT

EXAMPLES = os.path.join(ROOT, "examples")


@pytest.fixture(params=["memory", "redis"])
def store(request, urls):
    """Where the counts of an example are. Examples have a namespace of their own, so Redis is emptied of it."""
    url = urls[request.param]
    if url is not None:
        port = url.partition("?")[0].rpartition(":")[2]
        subprocess.run(["redis-cli", "-p", port, "flushall"], check=True, capture_output=True)
    return url


def test_the_plain_script():
    ran = subprocess.run(
        [sys.executable, os.path.join(EXAMPLES, "rules_plain.py")], capture_output=True, text=True, check=True
    )
    assert [line.partition(":")[0] for line in ran.stdout.splitlines()] == [
        "hello, vova", "hello, vova", "hello, vova", "not vova",
        "hello, anna", "hello, anna", "not anna",
        "[True, True, False]", "the report of this hour",
    ]


def test_the_tornado_app(store, clock):
    example = module("rules_tornado", os.path.join(EXAMPLES, "rules_tornado.py"))

    async def main():
        server = example.app(store, clock).listen(0, "127.0.0.1")
        port = next(iter(server._sockets.values())).getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            replies = [await client.get("/quote", params={"user": "vova"}) for _ in range(4)]
            assert [reply.status_code for reply in replies] == [200, 200, 200, 429]
            assert replies[-1].headers["retry-after"] == "3600" and "username:3/h" in replies[-1].json()["error"]
            assert [(await client.get("/quote")).status_code for _ in range(3)] == [200, 200, 429]
            clock.advance(60)
            assert (await client.get("/quote")).status_code == 200
            statuses = [(await client.post("/login", params={"user": "vova"})).status_code for _ in range(3)]
            assert statuses == [200, 200, 429]
        server.stop()

    asyncio.run(main())


def test_the_fastapi_app(store, monkeypatch):
    monkeypatch.delenv("TOLLWAY_STORE", raising=False)
    if store is not None:
        monkeypatch.setenv("TOLLWAY_STORE", store)
    example = module("rules_fastapi", os.path.join(EXAMPLES, "rules_fastapi.py"))
    with served(example.app) as url, httpx.Client(base_url=url) as client:
        replies = [client.get("/quote", headers={"x-user": "vova"}) for _ in range(4)]
        assert [reply.status_code for reply in replies] == [200, 200, 200, 429]
        assert 3590 <= int(replies[-1].headers["retry-after"]) <= 3600
        assert [client.get(f"/weather/{number}").status_code for number in range(4)] == [200, 200, 200, 429]
        assert client.get("/weather/riga").json()["error"].startswith("rate limit exceeded: weather, 3/h; retry after ")
        assert [client.get("/report").status_code for _ in range(2)] == [200, 429]


@contextlib.contextmanager
def served(app):
    """The URL of an app under uvicorn, which stops with the block."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def module(name, path):
    """A file as a module that nobody has imported yet."""
    spec = importlib.util.spec_from_file_location(name, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
