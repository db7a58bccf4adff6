"""Workers of all kinds: options, start, stop, pause and status; and the ones that need no Spark."""
