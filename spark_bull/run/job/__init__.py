"""One job: its run, its time limit and its outcome."""
