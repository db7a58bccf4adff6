"""The features of a write that adds jobs, a class each, in files by subject; `sink.py` has their order."""
