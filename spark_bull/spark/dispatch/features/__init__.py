"""The features of a write that adds jobs, a file each; `sink.py` has their order."""
