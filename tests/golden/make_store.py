"""Make the golden store of the current schema: ``python -m tests.golden.make_store`` (root).

Run it once, when a schema version is released, and commit what it writes. A golden store is
never made again: the tests open every one of them for ever.
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

from tests.unit.store_records import ELSEWHERE, HERE, SPEC, asked_and_told, telling_entries, trial

from kernelarc.storage import open_writer
from kernelarc.storage._schema import SCHEMA_VERSION

FOLDER = Path(__file__).resolve().parent


def main() -> None:
    """Write ``store-schema-N.db.gz`` unless it is there."""
    target = FOLDER / f"store-schema-{SCHEMA_VERSION}.db.gz"
    if target.exists():
        raise SystemExit(f"{target} exists: a golden store is never made again")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        with open_writer(path, create=True) as writer:
            first = writer.begin(SPEC, HERE)
            writer.append(first, [*telling_entries(), trial(0, "audit", upheld=True)])
            writer.append(writer.begin(SPEC, ELSEWHERE), asked_and_told(3))
        target.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


if __name__ == "__main__":
    main()
