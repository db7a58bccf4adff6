"""Calls: jobs whose outcomes are kept in private parents, so that the caller that added them gets each outcome once."""
