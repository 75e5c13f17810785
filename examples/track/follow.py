"""Follows the logs of a megatrain run: what to_wandb.py, to_mlflow.py and to_trackio.py share.

    for step, values in follow("RUN", after=-1): ...

gives {"train/loss": 2.5, ...} of every step and {"eval/loss": 2.4, ...} of every evaluation, as they are written, until
the run is over (RUN/hash.json) or Ctrl-C. A line that is not whole yet is waited for. A resumed run cuts its logs back to
its checkpoint and writes the steps behind that again: those are given again only where they are different.
"""
import json
import time
from pathlib import Path


def numbers(prefix, object):
    """{"lanes": {"h2d": {"busy_s": 1}}} as {"train/lanes.h2d.busy_s": 1}; texts are left out."""
    for key, value in object.items():
        if isinstance(value, dict):
            yield from numbers(f"{prefix}{key}.", value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and key not in ("step", "steps"):
            yield prefix + key, value


class Log:
    """One .jsonl file that grows, and sometimes shrinks."""

    def __init__(self, path, kind):
        self.path, self.kind = path, kind
        self.at, self.last = 0, b""  # where to read on, and the line before that
        self.given = {}  # step: line

    def lines(self):
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            file.seek(max(0, self.at - len(self.last)))
            if file.read(len(self.last)) != self.last:  # it was cut back, and may have grown again
                file.seek(0)
                self.at, self.last = 0, b""
            for line in file:
                if not line.endswith(b"\n"):
                    return  # the rest of it is still to come
                self.at, self.last = self.at + len(line), line
                object = json.loads(line)
                if self.given.get(object["step"]) != line:
                    self.given[object["step"]] = line
                    yield object["step"], dict(numbers(self.kind + "/", object))


def follow(run, after=-1, every_s=2.0, once=False):
    """Steps up to `after` were given before, by another call. With `once` it ends at the end of what is there."""
    run = Path(run)
    logs = [Log(run / "metrics.jsonl", "train"), Log(run / "eval.jsonl", "eval")]
    while True:
        over = once or (run / "hash.json").exists()  # looked for first: what is written before it is then read
        for log in logs:
            for step, values in log.lines():
                if step > after:
                    yield step, values
        if over:
            return
        time.sleep(every_s)


def settings(run):
    """The keys of config.resolved.yaml, as text."""
    pairs, parents = {}, []
    for line in (Path(run) / "config.resolved.yaml").read_text().splitlines():
        if not line.strip() or line.lstrip().startswith(("#", "-")):
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        key, _, value = line.strip().partition(":")
        parents[depth:] = [key]
        if value.strip():
            pairs[".".join(parents)] = value.strip()
    return pairs
