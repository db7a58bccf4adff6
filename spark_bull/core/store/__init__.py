"""The client of Redis: connections, servers, scripts, commands, and what redis-py's errors mean."""
