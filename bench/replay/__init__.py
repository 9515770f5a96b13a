"""Device ``replay``: a recorded search space answers instead of hardware.

Reading: `ReplayDevice` (a device), `ReplayFolder` (several recordings as one problem),
`replay_device` (which of the two a path asks for), `load_recording` (a `Recording`: problem,
spaces, rows), `load_input_space` (a space without results).
Writing: `write_recording`, in our own format.
"""

from kernelarc.bench.replay._answers import Answer, Answers
from kernelarc.bench.replay._device import ReplayDevice, ReplaySession
from kernelarc.bench.replay._folder import ReplayFolder, replay_device
from kernelarc.bench.replay._own import write_recording
from kernelarc.bench.replay._recording import Recording, RowCounts, load_recording
from kernelarc.bench.replay._t1 import load_input_space

__all__ = [
    "Answer",
    "Answers",
    "Recording",
    "ReplayDevice",
    "ReplayFolder",
    "ReplaySession",
    "RowCounts",
    "load_input_space",
    "load_recording",
    "replay_device",
    "write_recording",
]
