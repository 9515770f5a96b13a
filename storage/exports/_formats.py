"""The names of the export formats: the command line lists them without importing any."""

from __future__ import annotations

FORMATS = (
    "json",
    "c-header",
    "kernel_tuner-cache",
    "kernel_tuner-t4",
    "optuna",
    "cublaslt",
    "npy",
    "triton",
    "vllm-moe",
    "vllm-fp8",
    "helion",
    "inductor",
    "sol",
)
