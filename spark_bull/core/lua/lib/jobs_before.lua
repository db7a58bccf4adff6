-- How many waiting jobs may come before a job that is promoted because there is a place for it in its group. So it comes
-- after jobs of other groups that have waited for longer, but not after a long backlog.
local JOBS_BEFORE = 100
