"""The times of job schedulers: cron patterns and intervals."""
