"""Targets that the service calls, and those that it never does, whatever the DNS says."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from app.notices import guard, post
from app.notices.guard import TargetError
from app.settings import Settings, SettingsError
from tests.app.notices.receiver import receiving
from tests.app.notices.test_mail import authority  # noqa: F401 - a fixture

SETTINGS = Settings().webhook_allowed

PRIVATE = [
    ("loopback", "127.0.0.1"),
    ("loopback elsewhere", "127.8.9.10"),
    ("this host", "0.0.0.0"),
    ("private 10", "10.1.2.3"),
    ("private 172", "172.16.0.1"),
    ("private 192", "192.168.1.1"),
    ("link-local, metadata", "169.254.169.254"),
    ("carrier-grade NAT", "100.64.0.1"),
    ("documentation", "192.0.2.1"),
    ("benchmarks", "198.18.0.1"),
    ("protocol assignments", "192.0.0.1"),
    ("multicast", "224.0.0.1"),
    ("reserved", "240.0.0.1"),
    ("broadcast", "255.255.255.255"),
    ("IPv6 loopback", "::1"),
    ("IPv6 unspecified", "::"),
    ("unique local, metadata", "fd00:ec2::254"),
    ("IPv6 link-local", "fe80::1"),
    ("IPv6 link-local with a zone", "fe80::1%eth0"),
    ("a zone on a public one", "2606:4700::1%eth0"),
    ("site-local", "fec0::1"),
    ("IPv6 multicast", "ff02::1"),
    ("IPv6 documentation", "2001:db8::1"),
    ("IPv4-mapped loopback", "::ffff:127.0.0.1"),
    ("IPv4-mapped private", "::ffff:10.0.0.1"),
    ("IPv4-compatible loopback", "::127.0.0.1"),
    ("6to4 of a private one", "2002:0a00:0001::1"),
    ("6to4 of a public one", "2002:0808:0808::1"),
    ("Teredo", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
    ("NAT64 of loopback", "64:ff9b::7f00:1"),
    ("NAT64 of metadata", "64:ff9b::a9fe:a9fe"),
    ("NAT64 of a local network", "64:ff9b:1::808:808"),
    ("no address", "localhost"),
]
PUBLIC = ["8.8.8.8", "2606:4700:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", [case[1] for case in PRIVATE], ids=[case[0] for case in PRIVATE])  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not guard.is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_that_are_public(address: str) -> None:
    assert guard.is_public(address)


def resolved(monkeypatch: pytest.MonkeyPatch, url: str, *addresses: str, allow: str = "") -> list[str]:  # fmt: skip
    async def lookup(_host: str, _port: int) -> list[str]:
        return list(addresses)

    monkeypatch.setattr(guard, "lookup", lookup)
    settings = Settings(webhook_allow=allow).webhook_allowed
    return asyncio.run(guard.resolve(settings, guard.parse_target(settings, url)))


def test_one_private_address_among_public_ones_refuses_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "https://hooks.example.org/x"
    assert resolved(monkeypatch, url, "8.8.8.8", "1.1.1.1") == ["8.8.8.8", "1.1.1.1"]
    with pytest.raises(TargetError, match="private network"):
        resolved(monkeypatch, url, "8.8.8.8", "127.0.0.1")
    with pytest.raises(TargetError, match="no address"):
        resolved(monkeypatch, url)


SHAPES = [
    ("numbers for loopback", "https://2130706433/"),
    ("hexadecimal", "https://0x7f.1/"),
    ("credentials", "https://user:pass@hooks.example.org/"),
    ("an empty name", "https://@hooks.example.org/"),
    ("a fragment", "https://hooks.example.org/#x"),
    ("a space", "https://hooks.example.org/ x"),
    ("a line break", "https://hooks.example.org/\r\nX: y"),
    ("a backslash", "https://hooks.example.org\\@10.0.0.1/"),
    ("no host", "https:///x"),
    ("a port of nobody", "https://hooks.example.org:99999/"),
    ("beyond ASCII", "https://hööks.example.org/"),
    ("another scheme", "gopher://hooks.example.org/"),
    ("too long", "https://hooks.example.org/" + "x" * 2000),
]


@pytest.mark.parametrize("url", [case[1] for case in SHAPES], ids=[case[0] for case in SHAPES])
def test_shapes_of_urls_that_are_refused(url: str) -> None:
    with pytest.raises(TargetError) as caught:
        post.check(SETTINGS, url)
    assert "hooks" not in caught.value.detail.replace("hooks.example.org/lethe", "")


@pytest.mark.parametrize("port", [22, 25, 80, 993])
def test_ports_of_other_services_need_the_operators_word(
    monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    url = f"https://hooks.example.org:{port}/"
    with pytest.raises(TargetError, match="port 443"):
        resolved(monkeypatch, url, "8.8.8.8")
    assert resolved(monkeypatch, url, "8.8.8.8", allow="hooks.example.org")


def test_what_the_operator_names_may_be_reached_and_nothing_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "http://hooks.corp/"
    assert resolved(monkeypatch, url, "10.1.2.3", allow="10.1.0.0/16")
    assert resolved(monkeypatch, url, "10.1.2.3", allow="other, hooks.corp")
    for allow in ("10.2.0.0/16", "corp", "fd00::/8"):
        with pytest.raises(TargetError):
            resolved(monkeypatch, url, "10.1.2.3", allow=allow)
    with pytest.raises(TargetError):
        resolved(monkeypatch, url, "10.1.2.3", "127.0.0.1", allow="10.1.0.0/16")
    with pytest.raises(SettingsError, match="LETHE_WEBHOOK_ALLOW"):
        Settings(webhook_allow="10.1.2.3/8")


def test_a_name_that_rebinds_is_connected_to_at_the_checked_address_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first answer is public, the next one this machine: a server listens there."""
    asked: list[str] = []
    connected: list[str] = []

    async def lookup(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["8.8.8.8"] if len(asked) == 1 else ["127.0.0.1"]

    async def to(address: str, *_: object) -> post.Answer:
        connected.append(address)
        return post.Answer(204, 0)

    monkeypatch.setattr(guard, "lookup", lookup)
    monkeypatch.setattr(post, "to_address", to)
    post.post(SETTINGS, "https://hooks.example.org/", {}, b"{}")
    assert (asked, connected) == (["hooks.example.org"], ["8.8.8.8"])
    with pytest.raises(TargetError):
        post.post(SETTINGS, "https://hooks.example.org/", {}, b"{}")
    assert connected == ["8.8.8.8"]


def test_the_name_is_in_host_and_certificate_and_the_address_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
    authority: tuple[Path, ssl.SSLContext],  # noqa: F811
) -> None:
    """No resolver knows lethe.invalid: only the address that was checked can be reached."""
    pem, context = authority
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))

    async def lookup(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    monkeypatch.setattr(guard, "lookup", lookup)
    settings = Settings(webhook_allow="127.0.0.0/8").webhook_allowed
    with receiving(context) as receiver:
        answer = post.post(settings, receiver.url, {"webhook-id": "msg_1"}, b"{}")
        assert answer == post.Answer(204, 0)
        [(headers, body)] = receiver.seen
        assert headers["host"] == receiver.url.split("/")[2]
        assert headers["user-agent"].startswith("lethe/")
        assert body == b"{}"
        elsewhere = receiver.url.replace("localhost", "lethe.invalid")
        with pytest.raises(post.UnreachableError, match="tls"):
            post.post(settings, elsewhere, {}, b"{}")
        assert len(receiver.seen) == 1
    with pytest.raises(post.UnreachableError, match="connection"):
        post.post(settings, elsewhere, {}, b"{}")


def test_an_answer_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head comes a byte at a time: the whole attempt has one deadline."""
    import socket
    import threading

    monkeypatch.setattr(post, "WHOLE_S", 0.5)
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not stop.wait(0.05):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        settings = Settings(webhook_allow="127.0.0.1").webhook_allowed
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(post.UnreachableError, match="timeout"):
            post.post(settings, url, {}, b"{}")
        stop.set()
        thread.join()


def test_a_resolver_that_does_not_answer_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import socket
    import threading

    go, ended = threading.Event(), threading.Event()

    def slow(*_: Any, **__: Any) -> list[Any]:
        go.wait(5)
        ended.set()
        return [(2, 1, 6, "", ("203.0.113.9", 443))]

    monkeypatch.setattr(post, "WHOLE_S", 0.05)
    monkeypatch.setattr(post, "STEP_S", 0.05)
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", slow)
        with pytest.raises(post.UnreachableError, match="timeout"):
            post.post(SETTINGS, "https://slow.example/x", {}, b"{}")
        with pytest.raises(guard.TargetError, match="not resolved in time"):
            post.check(SETTINGS, "https://slow.example/x")
        assert not ended.is_set()
        go.set()
        assert ended.wait(60)
