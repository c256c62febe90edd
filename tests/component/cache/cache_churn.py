"""Fills and empties a cache for ever, until it is killed. `python cache_churn.py ROOT SEED`."""

from __future__ import annotations

import hashlib
import pathlib
import random
import sys

from corral.daemon.cache.contents import CacheContents, EvictionCandidate, choose
from corral.daemon.cache.partial_files import LargeFile, SmallFiles
from corral.domain.templates import PIECE, TemplateFile, TemplateManifest


def described(path: str, content: bytes) -> TemplateFile:
    pieces = [content[start : start + PIECE] for start in range(0, len(content), PIECE)]
    return TemplateFile(
        path=path,
        mode=0o644,
        size=len(content),
        digest=hashlib.sha256(content).hexdigest(),
        pieces=tuple(hashlib.sha256(piece).hexdigest() for piece in pieces) if len(pieces) > 1 else (),
    )


def receive(shelves: CacheContents, chance: random.Random) -> None:
    """A version with some small files and a large one, in blocks of any size."""
    contents = [chance.randbytes(chance.randrange(1, 50_000)) for _ in range(5)]
    files = [described(f"small-{number}", content) for number, content in enumerate(contents)]
    arriving = SmallFiles(files, parts=shelves.parts, contents=shelves.contents)
    stream = b"".join(contents)[arriving.begin() :]
    for start in range(0, len(stream), 9000):
        arriving.take(stream[start : start + 9000])
    large = chance.randbytes(PIECE + chance.randrange(1, PIECE))
    file = described("large", large)
    whole = LargeFile(file, parts=shelves.parts, contents=shelves.contents)
    whole.begin()
    for start in range(whole.position, len(large), 300_000):
        whole.take(large[start : start + 300_000])
    whole.finish()
    manifest = TemplateManifest(files=(file, *files))
    shelves.templates.put(
        "churned", hashlib.sha256(large).hexdigest(), manifest, now_ms=chance.randrange(10**6)
    )


def evict(shelves: CacheContents) -> None:
    candidates = []
    for known in shelves.templates.all():
        manifest = shelves.templates.manifest(known.hash)
        contents = {file.digest: file.size for file in manifest.files}
        candidates.append(
            EvictionCandidate(
                kind="template", key=known.hash, used_ms=known.used_ms, size=known.stored, contents=contents
            )
        )
    present = dict(shelves.contents.all())
    gone = choose(sum(present.values()) // 2, candidates=candidates, kept=[], present=present, protected=())
    for entry in gone.entries:
        shelves.forget(entry.kind, entry.key)
    shelves.discard(gone)


def main() -> None:
    shelves, chance = CacheContents(pathlib.Path(sys.argv[1])), random.Random(int(sys.argv[2]))
    shelves.scan()
    print("ready", flush=True)
    while True:
        receive(shelves, chance)
        if len(shelves.templates.all()) > 6:
            evict(shelves)


if __name__ == "__main__":
    main()
