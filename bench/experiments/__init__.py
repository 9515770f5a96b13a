"""Benchmark programs: run by hand, results kept under bench/results with environment and date."""
