"""Records as a Parquet table: columns for what is asked most, and the record itself as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from rollergen.hal.load import device_to_json, parse_device
from rollergen.optional import optional
from rollergen.store.keys import as_text
from rollergen.store.record_files import (
    LARGEST_RATIO,
    RecordFile,
    RecordsError,
    check_record,
    most_characters,
    object_of,
    open_records,
    read,
    unwritten,
    whole,
)

_DEVICES = b"rollergen.devices"
_ROWS = 16
"""So many are unpacked at once."""


def write_table(path: Path, records: RecordFile) -> None:
    """Columns group, class, dtype, device, status, predicted_ms, measured_ms (median; null unless ok), record (JSON);
    device specs stand in the schema's metadata."""
    arrow, parquet = _packages()
    rows = [_row(record) for record in records.records]
    specs = {key: device_to_json(device) for key, device in records.devices.items()}
    names = ("group", "class", "dtype", "device", "status", "predicted_ms", "measured_ms", "record")
    text, number = arrow.string(), arrow.float64()
    schema = arrow.schema(
        [(name, number if name.endswith("_ms") else text) for name in names], metadata={_DEVICES: as_text(specs)}
    )
    columns = [[row[n] for row in rows] for n in range(len(names))]
    partial = path.with_name(path.name + ".partial")
    try:
        parquet.write_table(arrow.table(columns, schema=schema), partial, compression="zstd")
        partial.replace(path)
    except (OSError, ValueError, arrow.ArrowException) as error:
        raise unwritten(path, error) from None
    finally:
        with suppress(OSError, ValueError):
            partial.unlink(missing_ok=True)


def read_any(path: Path) -> RecordFile:
    """A table (.parquet) or JSON Lines (any other name).  Raises RecordsError."""
    return read_table(path) if path.suffix == ".parquet" else read(path)


def read_table(path: Path) -> RecordFile:
    """Raises RecordsError."""
    arrow, parquet = _packages()
    try:
        with open_records(path) as raw:
            file = parquet.ParquetFile(raw)
            specs = json.loads((file.schema_arrow.metadata or {}).get(_DEVICES, b"null"))
            records = tuple(_records(path, file, most_characters(raw)))
        devices = {key: parse_device(as_text(spec).encode(), f"{path}: {key[:12]}") for key, spec in specs.items()}
    except RecordsError:
        raise
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError, arrow.ArrowException) as error:
        raise RecordsError(f"{path} cannot be read as records: {error}") from None
    return whole(RecordFile(devices, records), str(path))


def _records(path: Path, file: Any, most: int) -> Iterator[dict[str, Any]]:
    """The records of a table whose texts have at most so many characters: the same one may stand in every row."""
    number = 0
    for batch in file.iter_batches(_ROWS, columns=["record"]):
        for text in batch.column("record").to_pylist():
            number, most = number + 1, most - len(text)
            if most < 0:
                raise RecordsError(f"{path}, row {number}: it unpacks to over {LARGEST_RATIO} times its size")
            yield check_record(object_of(text, f"{path}, row {number}"), f"{path}, row {number}")


def _row(record: dict[str, Any]) -> tuple[Any, ...]:
    result, right = record["result"], record["result"]["status"] == "ok"
    return (
        record["group"], record["op"].get("class"), record["op"].get("dtype"), record["device"].get("id"),
        result["status"], record["pred"].get("micro_ms"), median(result["times_ms"]) if right else None,
        as_text(record),
    )  # fmt: skip


def _packages() -> tuple[Any, Any]:
    return optional("pyarrow", "parquet"), optional("pyarrow.parquet", "parquet")
