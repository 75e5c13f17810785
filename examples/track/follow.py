"""Follows the logs of a megatrain run: what to_wandb.py, to_mlflow.py and to_trackio.py share.

    for step, values in follow("RUN", Sent("RUN", "wandb", "megatrain")): ...

gives {"train/loss": 2.5, ...} of every step and {"eval/loss": 2.4, ...} of every evaluation, as they are written, until
the run is over (RUN/hash.json) or Ctrl-C. A line that is not whole yet is waited for. RUN/sent-to-wandb.json says how far
it came, so that no step is given twice: not when the script is started again, and not when the run is resumed and makes
the steps behind its checkpoint anew. Without that file everything is sent again, as another run.
"""
import json
import os
import time
import uuid
from pathlib import Path


class Sent:
    """The last step of each log that `to` was sent, how many lines in all, and the name that the run has there."""

    def __init__(self, run, tracker, to):
        self.path = Path(run) / f"sent-to-{tracker}.json"
        self.all = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.here = self.all.setdefault(to, {})
        self.here.setdefault("id", uuid.uuid4().hex[:16])
        self.id = self.here["id"]
        self.save()

    def has(self, kind, step):
        return step <= self.here.get(kind, -1)

    def add(self, kind, step):
        self.here[kind] = step
        self.here["lines"] = self.lines() + 1
        self.save()

    def lines(self):
        return self.here.get("lines", 0)

    def save(self):
        new = self.path.with_suffix(".partial")
        new.write_text(json.dumps(self.all, indent=1) + "\n")
        os.replace(new, self.path)

    def forget(self):
        for key in ("train", "eval", "lines"):
            self.here.pop(key, None)


def numbers(prefix, object):
    """{"lanes": {"h2d": {"busy_s": 1}}} as {"train/lanes.h2d.busy_s": 1}; texts are left out."""
    for key, value in object.items():
        if isinstance(value, dict):
            yield from numbers(f"{prefix}{key}.", value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and key not in ("step", "steps"):
            yield prefix + key, value


class Log:
    """One .jsonl file that grows, and sometimes shrinks: a resumed run cuts it back to its checkpoint."""

    def __init__(self, path, kind):
        self.path, self.kind = path, kind
        self.at, self.last = 0, b""  # where to read on, and the line before that

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
                yield object["step"], dict(numbers(self.kind + "/", object))


def follow(run, sent, every_s=2.0, once=False):
    """What was not sent yet; it counts as sent when the next is asked for. With `once` it ends at the end of what is there."""
    run = Path(run)
    logs = [Log(run / "metrics.jsonl", "train"), Log(run / "eval.jsonl", "eval")]
    while True:
        over = once or (run / "hash.json").exists()  # looked for first: what is written before it is then read
        for log in logs:
            for step, values in log.lines():
                if not sent.has(log.kind, step):
                    yield step, values
                    sent.add(log.kind, step)
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
