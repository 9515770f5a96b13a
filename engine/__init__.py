"""Who runs it: campaign, pipeline, controller, migration, audit, resume, public Python API.

- run and resume: run, resume, plan, verify, CampaignSettings, StopRequest
- what comes of it: CampaignResult, BestResult, VerifyResult, Plan, result_of, status
- who watches: Observer, Progress, Counts, IslandShare
- the machine: doctor, devices
"""

from kernelarc.engine._crash_points import CRASH_POINTS
from kernelarc.engine._devices import DeviceFacts, devices
from kernelarc.engine._doctor import Part, doctor
from kernelarc.engine._observer import Counts, IslandShare, Observer, Progress
from kernelarc.engine._plan import Plan, plan
from kernelarc.engine._rerun import rerun
from kernelarc.engine._results import BestResult, CampaignResult, result_of, workloads_of
from kernelarc.engine._run import artefacts_of, resume, run
from kernelarc.engine._settings import CampaignSettings
from kernelarc.engine._signals import StopRequest
from kernelarc.engine._source import source_of
from kernelarc.engine._status import status
from kernelarc.engine._targets import resolve_target
from kernelarc.engine._verify import Verified, VerifyResult, verify

__all__ = [
    "CRASH_POINTS",
    "BestResult",
    "CampaignResult",
    "CampaignSettings",
    "Counts",
    "DeviceFacts",
    "IslandShare",
    "Observer",
    "Part",
    "Plan",
    "Progress",
    "StopRequest",
    "Verified",
    "VerifyResult",
    "artefacts_of",
    "devices",
    "doctor",
    "plan",
    "rerun",
    "resolve_target",
    "result_of",
    "resume",
    "run",
    "source_of",
    "status",
    "verify",
    "workloads_of",
]
