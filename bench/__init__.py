"""How a candidate is judged: devices, compiling, timing, guardrails."""
