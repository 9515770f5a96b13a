"""How a person drives it: commands, live progress, report."""
