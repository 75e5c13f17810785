"""Prints the records that tensorboard_test.cc expects, as TensorBoard's own package writes them (pip install tensorboard)."""
import io

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

WALL_TIME = 1700000000.25


def show(event):
    out = io.BytesIO()
    RecordWriter(out).write(event.SerializeToString())
    print(out.getvalue().hex())


show(Event(wall_time=WALL_TIME, file_version="brain.Event:2"))
show(Event(wall_time=WALL_TIME, step=300, summary=Summary(value=[Summary.Value(tag="train/loss", simple_value=2.5)])))
show(Event(wall_time=WALL_TIME, step=1 << 40, session_log=SessionLog(status=SessionLog.START)))
