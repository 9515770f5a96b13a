#!/usr/bin/env bash
# `make run`: two real searches on this machine's CPU, audited, exported.
set -euo pipefail
kernelarc=$1 folder=$2
mkdir -p "$folder"
store=$folder/kernelarc.db

echo "== gemm 1024 x 1024 x 1024, float32, on up to all cores (baseline: the BLAS that NumPy uses)"
"$kernelarc" run gemm --device cpu --set M=1024 --set N=1024 --set K=1024 \
  --budget 303 --audit-rounds 25 --store "$store" --log "$folder/gemm.log"
"$kernelarc" export "$store" --format json -o "$folder/gemm.json"
"$kernelarc" export "$store" --format c-header -o "$folder/gemm.h"

echo
echo "== add_rmsnorm 4096 x 4096, float32 (baseline: NumPy's best expression)"
"$kernelarc" run add_rmsnorm --device cpu --set rows=4096 --set hidden=4096 \
  --budget 30 --audit-rounds 20 --store "$store" --log "$folder/add_rmsnorm.log"
"$kernelarc" export "$store" --format json -o "$folder/add_rmsnorm.json"
"$kernelarc" export "$store" --format c-header -o "$folder/add_rmsnorm.h"

echo
echo "== what was found"
"$kernelarc" campaigns "$store"
echo
echo "Everything is in $folder: the store, the logs, and the winners as JSON and as C headers."
echo "Next: what was learned, whether the claims hold (of campaign 1, gemm), the kernel as one C file:"
echo "  $kernelarc conclusions $store"
echo "  $kernelarc verify $store --campaign 1"
echo "  $kernelarc show $store FINGERPRINT --source > kernel.c      # the last column of the tables above"
