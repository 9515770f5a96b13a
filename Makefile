# Everything happens in .venv inside this checkout; nothing outside it is touched.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
GPU_PYTHON ?= $(BIN)/python
TORCH := torch==2.13.0+cpu
TORCH_TESTS := $(addprefix tests/unit/test_,operator_references.py triton_routes.py triton_moe.py triton_saved.py torch_forms.py torch_shapes.py cuda_solution.py inductor_table.py torch_cache.py)
COMPILERS := triton==3.6.0 cuda-python==13.0.3 nvidia-cuda-nvrtc==13.5.37
LOADERS := helion==1.5.1

.PHONY: help setup compilers run test references lint soak bench gpu lock docs clean

help: ## say what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## create .venv and install the locked dependencies, once

# Set up again when the lock or the project file changes; otherwise a no-op.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kernelarc needs Python 3.11 or newer (say make PYTHON=python3.12)")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# Of a loader, only the class that reads our file is wanted: it needs nothing of what its program needs.
compilers: $(READY) ## install the compilers of GPU kernels (about 300 MB): their tests need no GPU
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(COMPILERS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(LOADERS)

run: $(READY) ## search two real kernels on this CPU, audit and export the winners (two to five minutes on 2 cores)
	@bash tools/first_campaigns.sh $(BIN)/kernelarc run/$$(date +%Y%m%d-%H%M%S)

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/size_budget.py

test: $(READY) lint ## everything that CI runs, but for references
	$(BIN)/pytest -q -n 2 -m "not timed and not soak"
	$(BIN)/pytest -q -p no:xdist -m "timed and not soak"

# Downloaded first: what a limit cuts short leaves no half of torch in .venv.
references: $(READY) ## install torch for the CPU (900 MB) where pip has it, and run the tests that need it
	if timeout 300 $(BIN)/python -m pip download --quiet --disable-pip-version-check -d build/torch $(TORCH); then
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-index --find-links build/torch $(TORCH)
	  $(BIN)/pytest -q -n 2 $(TORCH_TESTS)
	else
	  echo "pip has no $(TORCH) here, or not within 300 s: tests of references and by Triton's interpreter do not run" >&2
	fi

soak: $(READY) ## kill -9 at 200 random moments; takes long
	$(BIN)/pytest -q -p no:xdist -m soak --timeout 7200

bench: $(READY) ## print figures of the engine, the store and the kernel spaces on this machine; takes long
	@for what in "engine_time" "engine_time --models" "large_store" "store_size" \
	            "cpu_space gemm" "cpu_space add_rmsnorm"; do
	  echo "== $$what"
	  $(BIN)/python -m kernelarc.bench.experiments.$$what
	done

gpu: ## check everything on this machine's NVIDIA GPU, judge first, then measure (GPU_PYTHON=python3 for another)
	@bash tools/gpu_check.sh $(GPU_PYTHON) run/gpu-$$(date +%Y%m%d-%H%M%S)

lock: ## resolve the dependencies anew (needs uv on the PATH or in .venv)
	PATH="$(BIN):$$PATH" uv pip compile pyproject.toml --extra dev --universal --generate-hashes \
	  --no-emit-index-url --no-annotate --custom-compile-command 'make lock' --quiet -o requirements.lock

docs: $(READY) ## write the help texts into docs/commands.md
	$(BIN)/python tools/command_docs.py

clean: ## remove caches and build products (not .venv, not run/)
	rm -rf build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
