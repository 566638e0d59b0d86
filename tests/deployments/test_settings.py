"""Serve's fast settings: set where nothing is set, for Ray's own commands alone; and the one
`X-Request-ID` that the project's middleware keeps.
"""

import asyncio
import os
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deployments import identity, settings

PATHS = (
    "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC",
    "RAY_SERVE_HAPROXY_SOCKET_PATH",
    "RAY_SERVE_HAPROXY_SERVER_STATE_BASE",
    "RAY_SERVE_HAPROXY_SERVER_STATE_FILE",
    "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH",
)
SOCKETS = ("RAY_SERVE_HAPROXY_SOCKET_PATH", "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH")
PORTS = settings.PORTS
RANGES = settings.INGRESS_PORTS


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """An empty environment in place of the process's, and the process id 1."""
    own: dict[str, str] = {}
    system = SimpleNamespace(environ=own, getpid=lambda: 1, getuid=os.getuid, path=os.path)
    monkeypatch.setattr(settings, "os", system)
    monkeypatch.setenv("HOME", str(tmp_path))  # no token of Ray's there
    return own


def test_what_is_unset_is_set(environment: dict[str, str]) -> None:
    settings.apply()
    assert settings.FIXED.items() <= environment.items()
    assert environment["RAY_SERVE_ENABLE_HA_PROXY"] == "1"
    assert environment.keys() == {*settings.FIXED, *PATHS, *PORTS, *RANGES, "RAY_AUTH_MODE"}
    assert all(environment.values())


def test_what_is_set_is_left_alone(environment: dict[str, str]) -> None:
    names = [*settings.FIXED, *PATHS, *PORTS, "RAY_AUTH_MODE"]
    mine = {name: f"mine {place}" for place, name in enumerate(names)}
    for name in names:
        environment.clear()
        environment[name] = mine[name]
        settings.apply()
        assert environment[name] == mine[name]
        assert set(environment) == {*names, *RANGES}  # and all the others are set


def test_what_is_set_to_nothing_is_left_alone_too(environment: dict[str, str]) -> None:
    environment["RAY_SERVE_ENABLE_HA_PROXY"] = ""
    settings.apply()
    assert environment["RAY_SERVE_ENABLE_HA_PROXY"] == ""


def test_applying_twice_changes_nothing(environment: dict[str, str]) -> None:
    settings.apply()
    once = dict(environment)
    settings.apply()
    assert environment == once


@pytest.mark.parametrize(
    ("argv", "applied"),
    [
        (["/venv/bin/serve", "run", "serve_config.yaml"], True),
        (["/venv/bin/ray", "start", "--head"], True),
        (["serve"], True),
        (["python"], False),
        (["scripts/qualify.py"], False),
        (["/venv/bin/observe"], False),
        (["/srv/serve/main.py"], False),
        (["-c"], False),
        ([""], False),
        ([], False),
    ],
)
def test_only_the_commands_of_ray_get_the_settings(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, argv: list[str], applied: bool
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    settings.apply_to_ray_commands()
    assert bool(environment) == applied


def test_a_socket_s_path_leaves_room_for_what_ray_adds(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings.os, "getpid", lambda: 4_194_304)  # the largest there is on Linux
    settings.apply()
    for name in SOCKETS:
        assert len(environment[name]) + 57 <= 97


def test_two_instances_share_no_path_and_no_port(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.apply()
    first = dict(environment)
    environment.clear()
    monkeypatch.setattr(settings.os, "getpid", lambda: 4_194_304)
    settings.apply()
    assert not {first[name] for name in PATHS} & {environment[name] for name in PATHS}
    assert len({first[name] for name in PATHS}) == len(PATHS)
    assert len({first[name] for name in PORTS}) == len(PORTS)


def test_ingress_replicas_of_two_instances_share_no_port(environment: dict[str, str]) -> None:
    """Ray binds with SO_REUSEPORT: on one port, each would get some of the other's requests."""
    settings.apply()
    low, high, grpc_low, grpc_high = (int(environment[name]) for name in RANGES)
    assert high - low == grpc_high - grpc_low == settings.INGRESS_REPLICAS - 1
    assert high < grpc_low
    with socket.socket() as replica:  # of the first instance, which goes on
        replica.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        replica.bind(("127.0.0.1", high))
        replica.listen()
        environment.clear()
        settings.apply()
    assert not {low, high, grpc_low, grpc_high} & {int(environment[name]) for name in RANGES}


def test_one_range_that_is_set_leaves_all_of_them_to_who_set_it(
    environment: dict[str, str],
) -> None:
    environment[RANGES[0]] = "31000"
    settings.apply()
    assert not set(RANGES[1:]) & environment.keys()


def test_free_ports_differ_and_can_be_listened_on() -> None:
    ports = settings.free_ports(50)
    assert len(set(ports)) == 50
    for port in ports[:5]:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
    assert settings.free_ports(0) == []


Headers = list[tuple[bytes, bytes]]
JSON = (b"content-type", b"application/json")


def answered(headers: Headers, kind: str = "http.response.start") -> Headers:
    """What a client gets of an answer with these headers through Serve's chain of middlewares."""
    sent: list[dict[str, Any]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": kind, "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    async def collect(message: Any) -> None:
        sent.append(message)

    wrapped: Any = application
    for middleware in identity.middlewares():
        wrapped = middleware.cls(wrapped, *middleware.args, **middleware.kwargs)
    asyncio.run(wrapped({"type": "http"}, None, collect))
    assert [message["type"] for message in sent] == [kind, "http.response.body"]
    assert sent[1] == {"type": "http.response.body", "body": b"{}"}
    return list(sent[0]["headers"])


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param(
            [JSON, (b"x-request-id", b"ours"), (b"x-request-id", b"serve's")],
            [JSON, (b"x-request-id", b"ours")],
            id="the first of two stays",
        ),
        pytest.param(
            [(b"X-Request-ID", b"ours"), JSON, (b"x-request-id", b"2"), (b"X-REQUEST-ID", b"3")],
            [JSON, (b"X-Request-ID", b"ours")],
            id="however it is written",
        ),
        pytest.param([(b"x-request-id", b"1"), JSON], [JSON, (b"x-request-id", b"1")], id="one"),
        pytest.param([JSON], [JSON], id="none"),
        pytest.param([], [], id="no header at all"),
        pytest.param(
            [JSON, (b"set-cookie", b"a"), (b"set-cookie", b"b")],
            [JSON, (b"set-cookie", b"a"), (b"set-cookie", b"b")],
            id="other headers may stand twice",
        ),
    ],
)
def test_of_several_request_ids_an_answer_keeps_the_first(
    headers: Headers, expected: Headers
) -> None:
    assert answered(headers) == expected


def test_other_messages_pass_as_they_are() -> None:
    twice = [(b"x-request-id", b"a"), (b"x-request-id", b"b")]
    assert answered(twice, "http.response.trailers") == twice


@pytest.mark.parametrize(
    ("starts_ray", "has_token", "mode"),
    [(True, False, "token"), (False, True, "token"), (False, False, None)],
)
def test_a_token_is_used_where_ray_makes_or_has_one(
    environment: dict[str, str], tmp_path: Path, starts_ray: bool, has_token: bool, mode: str | None
) -> None:
    if has_token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("secret")
    settings.apply(starts_ray=starts_ray)
    assert environment.get("RAY_AUTH_MODE") == mode


def test_old_folders_without_a_serving_haproxy_are_removed(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], tmp_path: Path
) -> None:
    base = Path(tempfile.mkdtemp(dir="/tmp"))  # a socket's path must be short
    monkeypatch.setattr(settings, "FOLDER", base / "d")
    folders = {name: base / f"d-{name}" / "node" for name in ("served", "left", "young")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    serving, ended = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    with serving, ended:
        serving.bind(str(folders["served"] / "admin.sock"))
        serving.listen()
        ended.bind(str(folders["left"] / "admin.sock"))
        long_ago = time.time() - 2 * settings.LEFTOVER_AGE_S
        for name in ("served", "left"):
            os.utime(folders[name].parent, (long_ago, long_ago))
        settings.apply()
    left = {folder.name for folder in base.iterdir()}
    shutil.rmtree(base)
    assert left == {"d-served", "d-young"}
