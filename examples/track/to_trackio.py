#!/usr/bin/env python3
"""Shows a megatrain run in trackio, while it runs or afterwards; everything stays on this machine.

    pip install trackio
    python3 examples/track/to_trackio.py RUN [--project megatrain] [--name NAME] [--once]
    trackio show --project megatrain

Started again, it goes on where it ended, in the same run there: RUN/sent-to-trackio.json has its name's end and how far
it came.
"""
import argparse
from pathlib import Path

import trackio

from follow import Sent, follow, settings

parser = argparse.ArgumentParser()
parser.add_argument("run", type=Path)
parser.add_argument("--project", default="megatrain")
parser.add_argument("--name", help="of the run there; otherwise its directory's")
parser.add_argument("--once", action="store_true", help="take what is there, and do not wait for more")
given = parser.parse_args()

path = given.run.resolve()
sent = Sent(path, "trackio", given.project)
trackio.init(project=given.project, name=f"{given.name or path.name}-{sent.id[:6]}", resume="allow", config=settings(path), embed=False,
             auto_log_gpu=False, auto_log_cpu=False)
try:
    for step, values in follow(path, sent, once=given.once):
        trackio.log(values, step=step)
except KeyboardInterrupt:
    print("the run goes on; start this again to follow it further")
trackio.finish()
