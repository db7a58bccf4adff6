"""The times of schedules: cron patterns and intervals."""
