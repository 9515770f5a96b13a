"""What is remembered: the append-only store, and the import and export of records."""
