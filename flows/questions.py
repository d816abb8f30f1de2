"""Three made-up texts for the embedded inference server: proof that what was released answers."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from data.errors import DaymillError
from flows import children
from flows.embedded import HOST, free_port, tail
from flows.settings import WORK, child_environment

READY_WITHIN_S = 60.0

QUESTIONS = {
    "a colleague": (
        "Re: Thursday's review\n\nHi Anna, I moved the review to Thursday at ten, the small room on the second floor. "
        "Could you bring the numbers for the last release? I have attached the draft of the agenda; add what is "
        "missing. Thanks, Tom"
    ),
    "an advertiser": (
        "LOSE WEIGHT FAST - 100% FREE trial!!!\n\nOrder NOW and save 70% on our amazing herbal pills. No prescription, "
        "guaranteed results or your money back! Click here to claim your free bottle. This offer is limited. To be "
        "removed from our mailing list, click below."
    ),
    "a fraudster": (
        "URGENT BUSINESS PROPOSAL - STRICTLY CONFIDENTIAL\n\nDear Sir, I am the son of a late minister and need a "
        "foreign partner to transfer the sum of US$25,500,000 out of my country. You will receive 30% for your "
        "assistance. Please send me your bank account details and private telephone number immediately."
    ),
}


def ask(root: Path, bundle: Path) -> list[dict[str, Any]]:
    """Start the inference server on a free loopback port, ask, and end it.

    Each answer: question, label, score, version, milliseconds (of the whole request). Raises DaymillError with the end
    of the server's log.
    """
    from serving import client
    from serving.manifest import open_bundle

    open_bundle(bundle)  # a server would wait for a damaged one to be mended
    port = free_port()
    log = root / WORK / "inference-server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    env = child_environment() | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "flows.cli", "serve", "--bundle", str(bundle), "--port", str(port)]
    with log.open("wb") as output, children.guarded(command, root, env, output) as process:
        url = f"http://{HOST}:{port}"
        wait_until_ready(url, process, log)
        asked = {question: client.ask(url, [text])[0] for question, text in QUESTIONS.items()}
    return [
        {
            "question": question,
            "label": answer.label,
            "score": round(answer.score, 4),
            "version": answer.version,
            "milliseconds": round(answer.milliseconds, 1),
        }
        for question, answer in asked.items()
    ]


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    from serving import client

    limit = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            return client.wait_until_ready(url, timeout_s=1)
        except DaymillError as error:
            if process.poll() is not None or time.monotonic() > limit:
                raise DaymillError(f"the inference server: {error}; the end of {log}:\n{tail(log)}") from None
