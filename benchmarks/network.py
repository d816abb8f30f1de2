"""Ranks in network namespaces of their own, joined by a switch whose ports are as slow as asked.

    hub (this script, in a namespace of its own): bridge -- port 0 === eth0 of rank 0
                                                         -- port 1 === eth0 of rank 1 ...

Both ends of each cable have a token bucket filter (tc), so that a rank sends and receives at the rate and no faster.
The namespaces have no names: the kernel removes each, with its cables, when its last process ends, and ranks end with
the hub. So nothing is left behind whatever happens, and the machine's own network is never touched. Needs iproute2 and
util-linux, and root or unprivileged user namespaces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data.parent import end_with_parent

INSIDE = "DAYMILL_BENCHMARK_NETWORK"
ADDRESS = "10.77.0.{}"  # of rank number - 1
SMALLEST_BURST = 16_384  # bytes; a filter that gives out less than a jiffy's worth cannot keep its rate
JIFFIES = 250


def enter() -> None:
    """Go on in a network namespace of this process's own: the script is executed again, inside."""
    if os.environ.get(INSIDE):
        end_with_parent()
        ip("link set lo up")
        return
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    os.environ[INSIDE] = "hub"
    os.execvp("unshare", ["unshare", *as_root, "--net", sys.executable, *sys.argv])


def ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


class Network:
    """Ranks that answer requests. Every request goes to all, and all answers come back, by rank."""

    def __init__(self, script: Path, ranks: int) -> None:
        self.ranks: list[subprocess.Popen[str]] = []
        ip("link add switch type bridge")
        ip("link set switch up")
        try:
            for rank in range(ranks):
                command = ["unshare", "--net", sys.executable, str(script), "--rank", str(rank)]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                self.ranks.append(process)
                self.answer(process)  # it is in its namespace
                ip(f"link add port{rank} type veth peer name eth0 netns {process.pid}")
                ip(f"link set port{rank} master switch up")
            self.ask(address=ADDRESS)
        except BaseException:
            self.close()
            raise

    def ask(self, **request: Any) -> list[Any]:
        for process in self.ranks:
            assert process.stdin is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        return [self.answer(process) for process in self.ranks]

    def answer(self, process: subprocess.Popen[str]) -> Any:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
        raise RuntimeError(f"a rank ended with exit code {process.wait()} before it answered")

    def throttle(self, bits_per_s: float) -> None:
        """Let no rank send or receive faster."""
        burst = max(SMALLEST_BURST, int(bits_per_s / 8 / JIFFIES))
        how = f"root tbf rate {int(bits_per_s)}bit burst {burst} latency 1s"
        for rank in range(len(self.ranks)):
            subprocess.run(["tc", "qdisc", "replace", "dev", f"port{rank}", *how.split()], check=True)
        self.ask(throttle=how)

    def close(self) -> None:
        for process in self.ranks:
            process.kill()
            process.wait()
        subprocess.run(["ip", "link", "del", "switch"], check=False)

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(rank: int, handle: Callable[..., Any]) -> None:
    """A rank's side: answer requests until the hub ends."""
    end_with_parent()
    answer(None)
    for line in sys.stdin:
        request = json.loads(line)
        if "address" in request:
            ip("link set lo up")
            ip(f"addr add {request['address'].format(rank + 1)}/24 dev eth0")
            ip("link set eth0 up")
            answer(None)
        elif "throttle" in request:
            subprocess.run(["tc", "qdisc", "replace", "dev", "eth0", *request["throttle"].split()], check=True)
            answer(None)
        else:
            answer(handle(**request))


def answer(value: Any) -> None:
    print(f"answer {json.dumps(value)}", flush=True)


def join(rank: int, ranks: int) -> None:
    """Be one of the ranks, on gloo over eth0."""
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
    port = 29_500 + ranks
    dist.init_process_group("gloo", init_method=f"tcp://{ADDRESS.format(1)}:{port}", rank=rank, world_size=ranks)


def carried() -> tuple[int, int]:
    """Bytes that the kernel saw go out and come in at eth0, headers included."""
    for line in Path("/proc/self/net/dev").read_text(encoding="utf-8").splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "eth0":
            fields = counts.split()
            return int(fields[8]), int(fields[0])
    raise RuntimeError("no eth0")
