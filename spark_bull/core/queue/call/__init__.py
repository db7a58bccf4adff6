"""Calls: jobs whose outcomes are kept in private parents, so that whoever added them gets each outcome once."""
