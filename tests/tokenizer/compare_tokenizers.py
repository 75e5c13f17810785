#!/usr/bin/env python3
"""Compares megatrain's tokenizer with the `tokenizers` library: ids, decoded texts, speed on one core.

    python3 tests/tokenizer/compare_tokenizers.py TOKENIZE_LINES LINES SEED TOKENIZER.json… [--text FILE…] [--no-decode]

LINES generated texts for each vocabulary; with --text, the lines of the files as well. Exits 1 on a difference.
"""
import os
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import numpy
from tokenizers import Tokenizer

import sample_texts

BATCH = 20000


def read_back(path):
    data = numpy.fromfile(path, dtype=numpy.uint8)
    at, results = 0, []
    raw = data.tobytes()
    while at < len(raw):
        count = int.from_bytes(raw[at:at + 4], "little")
        ids = numpy.frombuffer(raw, dtype="<i4", count=count, offset=at + 4).tolist()
        at += 4 + 4 * count
        size = int.from_bytes(raw[at:at + 4], "little")
        results.append((ids, raw[at + 4:at + 4 + size].decode()))
        at += 4 + size
    return results


def lines_of(paths):
    for path in paths:
        with open(path, encoding="utf-8", errors="ignore") as file:
            for line in file:
                yield line.replace("\0", "")


def main():
    arguments = sys.argv[1:]
    decode = "--no-decode" not in arguments
    arguments = [a for a in arguments if a != "--no-decode"]
    files = []
    if "--text" in arguments:
        files = arguments[arguments.index("--text") + 1:]
        arguments = arguments[:arguments.index("--text")]
    program, count, seed, vocabularies = arguments[0], int(arguments[1]), int(arguments[2]), arguments[3:]
    wrong = 0
    for path in vocabularies:
        library = Tokenizer.from_file(path)
        ours_s = theirs_s = 0.0
        texts_seen = bytes_seen = bad = 0

        def batches():
            for begin in range(0, count, BATCH):
                yield [t.replace("\0", "") for t in sample_texts.texts(seed + begin, min(BATCH, count - begin))]
            batch = []
            for line in lines_of(files):
                batch.append(line)
                if len(batch) == BATCH:
                    yield batch
                    batch = []
            if batch:
                yield batch

        for texts in batches():
            with tempfile.TemporaryDirectory() as folder:
                source, target = folder + "/texts", folder + "/ids"
                with open(source, "wb") as file:
                    file.write(b"".join(t.encode() + b"\0" for t in texts))
                done = subprocess.run([program, path, source, target], check=True, capture_output=True, text=True)
                ours_s += float(done.stdout)
                ours = read_back(target)
            start = time.perf_counter()
            encodings = library.encode_batch_fast(texts)
            theirs_s += time.perf_counter() - start
            theirs = [e.ids for e in encodings]
            decoded = library.decode_batch(theirs, skip_special_tokens=False) if decode else [d for _, d in ours]
            assert len(ours) == len(texts)
            for text, (ids, back), want, want_back in zip(texts, ours, theirs, decoded):
                if ids != want or back != want_back:
                    bad += 1
                    if bad <= 5:
                        print(f"  differs on {text!r}\n    ours   {ids}\n    theirs {want}\n    ours {back!r} theirs {want_back!r}")
            texts_seen += len(texts)
            bytes_seen += sum(len(t.encode()) for t in texts)
        wrong += bad
        print(f"{os.path.basename(path)}: {texts_seen} texts, {bytes_seen / 1e6:.1f} MB, {bad} differ; "
              f"{bytes_seen / 1e6 / ours_s:.1f} MB/s, library {bytes_seen / 1e6 / theirs_s:.1f} MB/s", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
