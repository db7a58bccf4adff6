"""A throw-away Redis for demos, notebooks and tests."""
