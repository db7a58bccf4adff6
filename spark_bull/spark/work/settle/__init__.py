"""mode=settle: rows are outcomes of claimed jobs.

Columns: `id` and `token` from the claim; `returnvalue` (any type that JSON can hold; a STRING is JSON) of a completed
job, or `error` (STRING) of a failed attempt, optionally with `stacktrace` (STRING) and `unrecoverable` (BOOLEAN: no
further attempt), and `then`, jobs to add in the same step: an ARRAY of STRUCTs with `data` and settings, `queue`
(default: the settled job's), and `on`: success (default) or failure. For a job that has to run again without
counting the attempt: `delay` (ms), `runAt` (TIMESTAMP), `rateLimit` (ms in which no job of the queue starts),
`groupRateLimit` (of the job's group), or
`waitForChildren` (BOOLEAN). The job's lock ensures that an outcome counts once: repeated tasks and batches are
harmless.
"""
