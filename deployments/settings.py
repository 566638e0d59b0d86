"""Ray Serve's fast settings, put in force by the project and not by its user.

Ray reads them from the environment when `serve run`, `serve start` or `ray start` begins, long
before it imports an application, so they are set at interpreter start by `detserve.pth`, which
pip installs with the package. docs/decisions/serve-settings.md has the measurements.

Only the standard library is imported here: this module runs whenever the environment's Python
starts. A variable that is already set is left alone.
"""

import contextlib
import os
import shutil
import socket
import sys
import time
from pathlib import Path

# HAProxy in front of the ingress, and deployments that talk by gRPC on one event loop: 2.9 ms and
# 349 requests/s where Serve as it comes needs 20 ms and does 60.
FIXED = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    # workers start at niceness 15 otherwise and lose to every other process of the host
    "RAY_worker_niceness": "0",
    # the ingress drains for 30 s otherwise: an outage of that length when it is replaced
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
    # between ingress and detector 4 MiB would be the most, and a larger image answers 500; what
    # bounds an image is the ingress's max_body_mb
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(2**31 - 1),
    # one X-Request-ID on every answer
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "deployments.identity:middlewares",
    "RAY_USAGE_STATS_ENABLED": "0",
}


# An ingress replica's own ports, which HAProxy sends to. Ray shares a port that is taken
# (SO_REUSEPORT) and every instance counts from 30000: two on one machine would answer each other's
# requests, with the other's models.
INGRESS_PORTS = tuple(
    f"RAY_SERVE_DIRECT_INGRESS_{end}_{kind}_PORT"
    for kind in ("HTTP", "GRPC")
    for end in ("MIN", "MAX")
)
INGRESS_REPLICAS = 50  # at most, on one machine
BLOCKS = range(10_000, 30_000, 2 * INGRESS_REPLICAS)  # below the ports that clients are given

# HAProxy's own, and those of Serve's proxy behind it, which takes over while no ingress replica is
# up and would share 8500 and 9500 likewise
PORTS = (
    "RAY_SERVE_HAPROXY_METRICS_PORT",
    "RAY_SERVE_HAPROXY_STATS_PORT",
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT",
    "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT",
)

FOLDER = Path("/tmp/detserve")
SOCKETS = "*/admin.sock"  # under a folder, one for each node
LEFTOVER_AGE_S = 3600


def apply(*, starts_ray: bool = True) -> None:
    """Set what is not set yet.

    starts_ray: this process is going to start Ray, rather than talk to one that runs.
    """
    values = dict(FIXED)
    # Ray starts with token authentication and makes the token, but its other commands do not look
    # for one by themselves: `serve deploy` and `serve status` would be refused
    if starts_ray or (Path.home() / ".ray" / "auth_token").exists():
        values["RAY_AUTH_MODE"] = "token"
    _remove_leftovers()
    # HAProxy's files and ports: two Serve instances on one machine must not share them. The
    # folder's name is short because Ray adds 57 characters and a socket's path ends at 97.
    folder = Path(f"{FOLDER}-{os.getpid()}")
    for name, file in (
        ("CONFIG_FILE_LOC", "haproxy.cfg"),
        ("SOCKET_PATH", "admin.sock"),
        ("SERVER_STATE_BASE", ""),
        ("SERVER_STATE_FILE", "server-state"),
        ("METRICS_SOCKET_PATH", "metrics.sock"),
    ):
        values[f"RAY_SERVE_HAPROXY_{name}"] = str(folder / file)
    missing_ports = [name for name in PORTS if name not in os.environ]
    values.update(zip(missing_ports, map(str, free_ports(len(missing_ports))), strict=True))
    if not any(name in os.environ for name in INGRESS_PORTS):
        first = free_block(2 * INGRESS_REPLICAS)
        ends = (0, INGRESS_REPLICAS - 1, INGRESS_REPLICAS, 2 * INGRESS_REPLICAS - 1)
        values.update(zip(INGRESS_PORTS, (str(first + end) for end in ends), strict=True))
    for name, value in values.items():
        os.environ.setdefault(name, value)


def apply_to_ray_commands() -> None:
    """Called at interpreter start: applies to the commands `serve` and `ray` alone."""
    command = [os.path.basename(word) for word in sys.argv[:1]] + sys.argv[1:2]
    if command[:1] in (["serve"], ["ray"]):
        apply(starts_ray=command == ["serve", "run"])


def _remove_leftovers() -> None:
    """Old folders whose HAProxy is gone; Serve leaves them. The process that named a folder may
    have ended while its HAProxy serves on, so a socket that answers decides."""
    for folder in FOLDER.parent.glob(f"{FOLDER.name}-*"):
        with contextlib.suppress(OSError):  # another process may be removing it too
            status = folder.stat()
            old = time.time() - status.st_mtime > LEFTOVER_AGE_S
            if (
                old
                and status.st_uid == os.getuid()
                and not any(map(_answers, folder.glob(SOCKETS)))
            ):
                shutil.rmtree(folder)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def free_block(count: int) -> int:
    """The first of `count` ports in a row that nothing listens on at this moment; instances that
    start at once look in different places first.

    Raises:
        OSError: there is no such block.
    """
    first = os.getpid() % len(BLOCKS)
    for step in range(len(BLOCKS)):
        start = BLOCKS[(first + step) % len(BLOCKS)]
        if all(map(_is_free, range(start, start + count))):
            return start
    raise OSError(f"no {count} free ports in a row from {BLOCKS.start} to {BLOCKS.stop}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on at this moment, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
