"""What all writes have in common: tasks stage rows, and the driver registers the stages and rolls them forward."""
