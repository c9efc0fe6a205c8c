"""A client survives servers that are missing, silent, restarted or something else, and never pays twice."""

import asyncio
import os
import pickle
import re
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager

import pytest
from conftest import free_port, tollway_server

from tollway import Client, InvalidId, ServerError, ServerTimeout, ServerUnreachable, StoreError

LIMITS = "limits: { login: { burst: 100, count: 100, period: 100h } }"
DECISION = b'{"allowed":true,"remaining":4,"retry_after":0,"reset_after":2,"limit":"login"}'


def both(client, verb, *args):
    """Yields the call and its awaited twin."""

    async def awaited():
        async with client:
            return await getattr(client, f"{verb}_async")(*args)

    return [lambda: getattr(client, verb)(*args), lambda: asyncio.run(awaited())]


@contextmanager
def scripted(*answers):
    """A server that reads one request for each answer. ``None`` closes the connection instead."""
    requests = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        left = list(answers)
        while left:
            connection, _ = listener.accept()
            with connection:
                while left:
                    request = connection.recv(65536)
                    if not request:
                        break
                    requests.append(request)
                    answer = left.pop(0)
                    if answer is None:
                        break
                    connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", requests
    finally:
        listener.close()
        thread.join(5)


def response(status, body, headers=b""):
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(body), headers, body)


def test_without_a_server_the_error_says_how_to_start_one():
    client = Client(f"127.0.0.1:{free_port()}")
    for call in both(client, "spend", "login", "alice"):
        with pytest.raises(ServerUnreachable) as error:
            call()
        address = error.value.address
        assert str(error.value) == f'no server at {address}; start one with "tollway serve"'
        assert isinstance(error.value, ConnectionError)
        assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b"])
def test_a_host_that_cannot_be_looked_up_is_named(host):
    for call in both(Client(f"{host}:7", timeout=20), "spend", "login", "alice"):
        with pytest.raises(ServerUnreachable, match=f"the host in {host}:7 cannot be looked up; check its spelling") as error:
            call()
        assert error.value.__cause__ is not None


def test_a_host_with_several_addresses_that_all_refuse_has_no_server():
    for call in both(Client(f"localhost:{free_port()}"), "spend", "login", "alice"):
        with pytest.raises(ServerUnreachable, match="no server at localhost:"):
            call()


def test_a_timeout_that_no_timer_takes_is_a_value_error():
    for timeout in 0, -1, float("nan"), float("inf"):
        with pytest.raises(ValueError, match="timeout must be more than 0 seconds and at most 86400"):
            Client(timeout=timeout)


def test_a_connection_that_nobody_accepts_is_a_timeout():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # The backlog is full then, and the next connection is dropped, as a firewall would.
        with socket.create_connection(full.getsockname()):
            client = Client(f"127.0.0.1:{full.getsockname()[1]}", timeout=0.2)
            for call in both(client, "spend", "login", "alice"):
                with pytest.raises(ServerTimeout, match="no connection to .* within 0.2 s; check that the host is up") as error:
                    call()
                assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_a_silent_server_is_a_timeout():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.2)
        for call in both(client, "spend", "login", "alice"):
            with pytest.raises(ServerTimeout, match="no answer from .* within 0.2 s; the charge may have been made") as error:
                call()
            assert isinstance(error.value, ServerUnreachable) and isinstance(error.value, TimeoutError)
            assert error.value.timeout == 0.2


@pytest.mark.parametrize("turn", [0, 1])
def test_a_request_that_was_sent_is_not_sent_again(turn):
    with scripted(None) as (address, requests):
        with pytest.raises(ServerUnreachable, match="the charge may have been made"):
            both(Client(address), "spend", "login", "alice")[turn]()
    assert len(requests) == 1


def test_connections_are_kept_and_replaced_after_a_restart():
    port = free_port()

    async def twice(client):
        return [(await client.spend_async("login", "alice")).remaining for _ in range(2)]

    loop = asyncio.new_event_loop()
    client = Client(f"127.0.0.1:{port}", timeout=20)
    for _ in range(2):
        with tollway_server(LIMITS, port):
            assert [client.spend("login", "alice").remaining for _ in range(2)] == [99, 98]
            assert loop.run_until_complete(twice(client)) == [97, 96]
            assert len(client._idle) == 1 and len(client._idle_async[loop]) == 1
    loop.run_until_complete(client.close_async())
    loop.close()
    client.close()


def test_a_kept_connection_carries_several_requests():
    answer = response(200, DECISION)
    with scripted(answer, answer, answer) as (address, requests):
        with Client(address) as client:
            for _ in range(3):
                assert client.spend("login", "alice").remaining == 4
    assert len(requests) == 3
    assert requests[0].startswith(b"POST /v1/spend HTTP/1.1\r\nHost: 127.0.0.1:")
    assert requests[0].endswith(b'{"limit":"login","id":"alice","cost":1}')


@pytest.mark.parametrize("answer", [
    response(200, DECISION, b"Connection: close\r\n"),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n" + DECISION[:16] + b"\r\n%x\r\n" % len(DECISION[16:])
    + DECISION[16:] + b"\r\n0\r\n\r\n",
])
def test_answers_through_proxies_are_read(answer):
    for turn in [0, 1]:
        with scripted(answer) as (address, _), Client(address) as client:
            assert both(client, "spend", "login", "alice")[turn]().remaining == 4


def test_a_denial_is_a_decision_with_any_status():
    denied = DECISION.replace(b"true", b"false").replace(b'"retry_after":0', b'"retry_after":null')
    unreachable = b'{"allowed":false,"remaining":null,"retry_after":1,"reset_after":1,"limit":"login","reason":"store","degraded":true}'
    with scripted(response(429, denied), response(503, unreachable)) as (address, _), Client(address) as client:
        decision = client.spend("login", "alice")
        assert not decision and decision.retry_after is None and not decision.degraded
        decision = client.spend("login", "alice")
        assert not decision and decision.degraded and decision.remaining is None and decision.retry_after == 1.0


def test_problems_are_exceptions():
    problem = b'{"type":"urn:problem-type:tollway:%s","title":"Not ready","status":503,"detail":"the server drains"}'
    answers = [response(503, problem % b"not-ready"), response(503, problem % b"store-unreachable"), response(502, b"<html>")]
    with scripted(*answers) as (address, _), Client(address) as client:
        with pytest.raises(ServerError) as error:
            client.refund("login", "alice")
        assert (error.value.status, error.value.title, error.value.detail) == (503, "Not ready", "the server drains")
        assert str(error.value) == "Not ready: the server drains (status 503)"
        with pytest.raises(StoreError, match="the server drains"):
            client.refund("login", "alice")
        with pytest.raises(ServerError, match="<html>"):
            client.refund("login", "alice")


def test_something_that_is_not_http_is_not_a_server():
    for turn in [0, 1]:
        with scripted(b"+PONG\r\n\r\n") as (address, _):
            with pytest.raises(ServerUnreachable, match=f"invalid answer from {address}; check that the HTTP gate"):
                both(Client(address), "spend", "login", "alice")[turn]()


def test_a_cancelled_call_leaves_no_answer_for_the_next():
    with tollway_server(LIMITS) as address:

        async def main():
            async with Client(address, timeout=20) as client:
                await client.spend_async("login", "bob")
                begun = asyncio.ensure_future(client.spend_async("login", "alice", 7))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                begun.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await begun
                return await client.check_async("login", "carol", 0)

        assert asyncio.run(main()).remaining == 100


def test_threads_and_tasks_share_a_client():
    with tollway_server(LIMITS) as address, Client(address, timeout=20) as client:
        allowed = []

        def work():
            allowed.extend(bool(client.spend("login", "alice")) for _ in range(20))

        async def main():
            decisions = await asyncio.gather(*[client.spend_async("login", "alice") for _ in range(40)])
            await client.close_async()
            return decisions

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        allowed.extend(bool(decision) for decision in asyncio.run(main()))
        for thread in threads:
            thread.join()
        assert len(allowed) == 120 and sum(allowed) == 100


def test_a_forked_process_opens_its_own_connection():
    with tollway_server(LIMITS) as address, Client(address, timeout=20) as client:
        assert client.spend("login", "alice").remaining == 99
        pid = os.fork()
        if pid == 0:
            os._exit(0 if client.spend("login", "alice").remaining == 98 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert client.spend("login", "alice").remaining == 97


def test_an_id_that_json_has_no_text_for_is_rejected_before_it_is_sent():
    for id in [b"\xff", "\udcff"]:
        with pytest.raises(InvalidId, match="is not UTF-8"):
            Client().spend("login", id)


@pytest.mark.parametrize("address, shown", [
    ("localhost", "localhost:8080"),
    ("localhost/", "localhost:8080"),
    ("http://localhost:7/", "localhost:7"),
    ("http://localhost", "localhost:80"),
    ("http://[::1]", "[::1]:80"),
    ("https://localhost", "localhost:443"),
    ("https://localhost:8443/", "localhost:8443"),
    ("[::1]:7", "[::1]:7"),
    ("[::1]", "[::1]:8080"),
])
def test_addresses_are_understood(address, shown):
    assert Client(address).address == shown
    assert repr(Client(address)) == f"Client({shown!r}, timeout=1.0)"


@pytest.mark.parametrize("address", ["", ":80", "a:", "a:b", "a:0", "a:70000", "a/b", "[::1", "::1", "a:1:2", "a b", "ftp://a"])
def test_addresses_that_are_not_valid_raise(address):
    with pytest.raises(ValueError, match=f"invalid address {re.escape(repr(address))}; write it as HOST or HOST:PORT"):
        Client(address)
    with pytest.raises(ValueError, match="tls is for an https:// address, and not for 'http://x'"):
        Client("http://x", tls="ca.pem")
    with pytest.raises(FileNotFoundError):
        Client("https://x", tls="/no/such/file")
    with pytest.raises(ValueError, match="timeout must be more than 0"):
        Client(timeout=0)


def test_a_token_is_sent_with_every_call_and_shown_nowhere():
    for way in range(2):
        with scripted(response(200, DECISION)) as (address, requests):
            client = Client(address, timeout=5.0, token="tw_secret")
            assert both(client, "spend", "login", "alice")[way]().allowed
        assert len(requests) == 1
        assert b"\r\nAuthorization: Bearer tw_secret\r\n" in requests[0]
    assert "secret" not in repr(client)


@pytest.mark.parametrize("token", ["", "two words", "a\r\nHost: b", "\u00e4", "a" * 513])
def test_a_token_that_no_server_has_is_refused_without_repeating_it(token):
    with pytest.raises(ValueError, match="token must have 1 to 512 visible ASCII characters") as refused:
        Client("127.0.0.1:8080", token=token)
    assert not token or token not in str(refused.value)


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def certificate(folder, name, extension):
    """Makes a key, and a certificate of the authority in the folder."""
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    if name == "ca":
        openssl(folder, "req", "-x509", *new_key, "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem")
        return
    (folder / f"{name}.ext").write_text(extension)
    openssl(folder, "req", *new_key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext"]
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")


def test_a_server_is_asked_by_tls_with_and_without_a_certificate_of_the_client(tmp_path):
    certificate(tmp_path, "ca", "")
    certificate(tmp_path, "server", "subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    certificate(tmp_path, "alice", "extendedKeyUsage=clientAuth\n")
    ca = tmp_path / "ca.pem"
    server = f"cert: {tmp_path}/server.pem, key: {tmp_path}/server.key"
    for client_ca in ["", f", client_ca: {ca}"]:
        port = free_port()
        gates = f"gates: {{ http: {{ listen: '127.0.0.1:{port}', tls: {{ {server}{client_ca} }} }}, admin: 127.0.0.1:0,"
        gates += " text: off, throttr: off, resp: off, rls: off }"
        with tollway_server(f"{LIMITS}\n{gates}", port):
            address = f"https://127.0.0.1:{port}"
            context = ssl.create_default_context(cafile=str(ca))
            if client_ca:
                context.load_cert_chain(tmp_path / "alice.pem", tmp_path / "alice.key")
            client = Client(address, timeout=20.0, tls=context if client_ca else ca)
            for call in both(client, "check", "login", "alice") * 2:
                assert call().allowed
            client.close()
            untrusting = Client(address, timeout=20.0)
            plain = Client(f"http://127.0.0.1:{port}", timeout=20.0)
            without = [Client(address, timeout=20.0, tls=ca)] if client_ca else []
            for wrong in [untrusting, plain, *without]:
                for call in both(wrong, "check", "login", "alice"):
                    with pytest.raises(ServerUnreachable) as refused:
                        call()
                    assert wrong is plain or "no TLS connection to 127.0.0.1:" in str(refused.value)


def test_a_server_that_asks_for_a_token_refuses_calls_without_one(tmp_path):
    tokens = tmp_path / "tokens.txt"
    printed = subprocess.run(
        [os.environ["TOLLWAY_BINARY"], "token", "web", "--scope", "decide", "--append", tokens],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    token = next(word for word in printed.split() if word.startswith("tw_"))
    with tollway_server(f"tokens: {tokens}\n{LIMITS}") as address:
        assert Client(address, timeout=5.0, token=token).spend("login", "alice").allowed
        for client, status in [(Client(address, timeout=5.0), 401), (Client(address, timeout=5.0, token="tw_1"), 401)]:
            for call in both(client, "spend", "login", "alice"):
                with pytest.raises(ServerError) as refused:
                    call()
                assert refused.value.status == status
        with pytest.raises(ServerError) as refused:
            Client(address, timeout=5.0, token=token).refund("login", "alice")
        assert refused.value.status == 403
        assert token not in str(refused.value)
