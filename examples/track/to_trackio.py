#!/usr/bin/env python3
"""Shows a megatrain run in trackio, while it runs or afterwards; everything stays on this machine.

    pip install trackio
    python3 examples/track/to_trackio.py RUN [--project megatrain] [--once]
    trackio show --project megatrain

Started again, it goes on where it ended, as it notes beside trackio's own files how far it came. Steps that a resumed run
makes anew are logged again at their step.
"""
import argparse
import hashlib
from pathlib import Path

import trackio

from follow import follow, settings

parser = argparse.ArgumentParser()
parser.add_argument("run", type=Path)
parser.add_argument("--project", default="megatrain")
parser.add_argument("--once", action="store_true", help="take what is there, and do not wait for more")
given = parser.parse_args()

path = given.run.resolve()
name = f"{path.name}-{hashlib.sha1(str(path).encode()).hexdigest()[:6]}"
note = Path(trackio.TRACKIO_DIR) / f"{given.project}-{name}.step"
after = int(note.read_text()) if note.exists() else -1
trackio.init(project=given.project, name=name, resume="allow", config=settings(path), embed=False, auto_log_gpu=False,
             auto_log_cpu=False)
note.parent.mkdir(parents=True, exist_ok=True)
try:
    for step, values in follow(path, after, once=given.once):
        trackio.log(values, step=step)
        after = max(after, step)
        note.write_text(str(after))
except KeyboardInterrupt:
    print("the run goes on; start this again to follow it further")
trackio.finish()
