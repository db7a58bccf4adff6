"""mode=settle: rows are outcomes of claimed jobs.

`id` and `token` come from the claim. A completed job has `returnvalue`, of any type that JSON can hold; a STRING is
JSON. A failed attempt has `error` (STRING), optionally with `stacktrace` (STRING) and `unrecoverable` (BOOLEAN: no
further attempt).

`then` has jobs to add in the same step. It is an ARRAY of STRUCTs with `data` and settings, `queue` (default: the
settled job's), and `on`: success (default) or failure.

A job that has to run again without counting the attempt has one more column. Its name is `delay` (ms), `runAt`
(TIMESTAMP), `rateLimit` (ms in which no job of the queue starts), `groupRateLimit` (of the job's group), or
`waitForChildren` (BOOLEAN).

The job's lock ensures that an outcome counts once: repeated tasks and batches are harmless.
"""
