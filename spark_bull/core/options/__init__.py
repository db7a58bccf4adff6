"""The table of options, parsers of their values, and parsed options.

table.py has the name, type, default, parser and text of each option (parts.py: of options that verbs share), and
arguments.py its type as an argument in Python.
redis_settings.py has which Redis is connected to, by options and environment variables, parsed once as `options.redis`.
"""
