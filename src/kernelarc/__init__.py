"""kernelarc: evolutionary search, with a database, for the fastest correct kernel."""
