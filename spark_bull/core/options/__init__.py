"""The table of options, parsers of their values, and parsed options."""
