"""Calls the services behind a queue for the rows of a DataFrame."""
