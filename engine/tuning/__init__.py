"""Tuning a kernel where a program calls it: ``autotune``, in the place of Triton's decorator."""

from kernelarc.engine.tuning._decorator import autotune

__all__ = ["autotune"]
