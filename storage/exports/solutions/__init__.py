"""Sources of exported solutions: they stand alone and import nothing of ours."""
