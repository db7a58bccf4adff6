"""The Worker on executors, the source of claimed jobs, and processors of all kinds."""
