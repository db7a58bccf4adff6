"""What one queue can do, without Spark: its model, keys, options, dialects, connection, payloads, and its verbs."""
