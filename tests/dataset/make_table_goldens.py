#!/usr/bin/env python3
"""Writes tests/dataset/goldens/tables: small tables by pyarrow, polars and datasets, each with the same rows as JSON Lines.

Needs pyarrow, polars and datasets: pip install pyarrow polars datasets
"""
import datetime
import decimal
import json
import pathlib
import shutil

import datasets
import polars
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

out = pathlib.Path(__file__).parent / "goldens" / "tables"
shutil.rmtree(out, ignore_errors=True)
out.mkdir(parents=True)

texts = ["plain", "two\nlines", 'a "quote" and \\', "ünïcödé 日本語 🙂", "", "\t\x01 control", "x" * 300]
messages = [
    {"messages": [{"role": "user", "content": f"Say {i}", "tool_calls": None},
                  {"role": "assistant", "content": texts[i % len(texts)] or "nothing", "tool_calls": None}],
     "source": None if i % 3 else "web"}
    for i in range(30)]
sharegpt = [{"conversations": [{"from": "human", "value": f"Q{i}"}, {"from": "gpt", "value": f"A{i}"}] * (i % 3 + 1)}
            for i in range(25)]
prompts = [{"prompt": f"What is {i}?", "completion": f" It is {i}.", "score": i / 8, "n": i, "good": i % 2 == 0}
           for i in range(40)]
documents = [{"text": texts[i % len(texts)] or "empty"} for i in range(50)]
nulls = [{"text": f"t{i}", "note": None if i % 2 else "n", "tags": None if i % 3 else ["a", None],
          "meta": None if i % 5 else {"k": None, "v": i}, "nothing": None} for i in range(20)]


def rows_of(name, rows):
    with open(out / f"{name}.jsonl", "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def parquet(name, rows, table=None, **options):
    pq.write_table(table if table is not None else pa.Table.from_pylist(rows), out / f"{name}.parquet", **options)
    rows_of(name, rows)


parquet("messages-snappy", messages, compression="snappy", row_group_size=7)
parquet("messages-zstd", messages, compression="zstd", data_page_version="2.0")
parquet("messages-gzip", messages, compression="gzip", data_page_size=64)
parquet("messages-brotli", messages, compression="brotli")
parquet("messages-lz4", messages, compression="lz4")
parquet("messages-none", messages, compression="none", use_dictionary=False)
parquet("sharegpt", sharegpt, row_group_size=4)
parquet("prompt", prompts, version="1.0")
parquet("documents-delta", documents, use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"})
parquet("nulls", nulls)
dictionary = pa.table({"text": pa.array([row["text"] for row in documents]).dictionary_encode()})
parquet("dictionary", documents, dictionary)
large = pa.table({"prompt": pa.array([r["prompt"] for r in prompts], pa.large_string()),
                  "completion": pa.array([r["completion"].encode() for r in prompts], pa.binary()),
                  "words": pa.array([[str(r["n"])] * 3 for r in prompts], pa.large_list(pa.large_string()))})
parquet("large-and-binary", [{"prompt": r["prompt"], "completion": r["completion"], "words": [str(r["n"])] * 3}
                             for r in prompts], large)
types = pa.table({
    "i8": pa.array([-128, 127], pa.int8()), "u64": pa.array([0, 2**64 - 1], pa.uint64()),
    "f16": pa.array([0.5, -2.0], pa.float16()), "f32": pa.array([0.1, 1.0], pa.float32()),
    "f64": pa.array([1e300, float("nan")]),
    "decimal": pa.array([decimal.Decimal("-1.50"), decimal.Decimal("0.07")], pa.decimal128(10, 2)),
    "date": pa.array([datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]),
    "time": pa.array([datetime.time(1, 2, 3), datetime.time(23, 59, 59, 250000)], pa.time64("us")),
    "stamp": pa.array([datetime.datetime(2026, 11, 19, 20, 15), datetime.datetime(1960, 1, 1, 0, 0, 0, 1)],
                      pa.timestamp("us", "UTC")),
    "map": pa.array([[("a", 1)], [("b", 2), ("c", None)]], pa.map_(pa.string(), pa.int32())),
    "pair": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))})
parquet("types", [
    {"i8": -128, "u64": 0, "f16": 0.5, "f32": 0.10000000149011612, "f64": 1e300, "decimal": "-1.50",
     "date": "1969-12-31", "time": "01:02:03", "stamp": "2026-11-19T20:15:00Z", "map": {"a": 1}, "pair": [1, 2]},
    {"i8": 127, "u64": 2**64 - 1, "f16": -2.0, "f32": 1.0, "f64": None, "decimal": "0.07", "date": "2024-02-29",
     "time": "23:59:59.250000", "stamp": "1960-01-01T00:00:00.000001Z", "map": {"b": 2, "c": None}, "pair": [3, 4]}],
    types)
pq.write_table(pa.table({"text": pa.array([], pa.string())}), out / "no-rows.parquet")
rows_of("no-rows", [])

# A million rows of twenty texts: 250 KB.
million = pa.table({"text": pa.DictionaryArray.from_arrays(
    pa.array([i % 20 for i in range(1000000)], pa.int8()), pa.array([f"text {i}" for i in range(20)]))})
pq.write_table(million, out / "million.parquet", compression="zstd")

frame = polars.DataFrame(prompts)
frame.write_parquet(out / "polars-prompt.parquet")
rows_of("polars-prompt", prompts)
polars.DataFrame(messages, schema_overrides={"source": polars.Categorical}).write_parquet(
    out / "polars-messages.parquet", compression="zstd", row_group_size=11)
rows_of("polars-messages", messages)
polars.DataFrame(sharegpt).write_parquet(out / "polars-sharegpt.parquet", compression="gzip")
rows_of("polars-sharegpt", sharegpt)
polars.DataFrame(documents).write_ipc(out / "polars-views.arrow", compression="zstd", compat_level=None)
rows_of("polars-views", documents)
frame.write_ipc_stream(out / "polars-stream.arrow", compression="lz4")
rows_of("polars-stream", prompts)

for name, rows in {"datasets-messages": messages, "datasets-nulls": nulls}.items():
    datasets.Dataset.from_list(rows).to_parquet(out / f"{name}.parquet")
    rows_of(name, rows)

for name, writer in {"file.arrow": ipc.new_file, "stream.arrow": ipc.new_stream}.items():
    table = pa.Table.from_pylist(messages)
    with writer(out / f"ipc-{name}", table.schema) as sink:
        sink.write_table(table, max_chunksize=8)
    rows_of(f"ipc-{name.removesuffix('.arrow')}", messages)
with ipc.new_stream(out / "ipc-dictionary.arrow", dictionary.schema) as sink:
    sink.write_table(dictionary)
rows_of("ipc-dictionary", documents)

saved = datasets.DatasetDict({"train": datasets.Dataset.from_list(messages),
                              "test": datasets.Dataset.from_list(messages[:5])})
saved.save_to_disk(out / "saved", num_shards={"train": 2, "test": 1})
