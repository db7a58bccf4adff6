-- Adds the next staged jobs of a registered write to the queue.
-- @returns {state of the write, rows processed, id of a write that comes first, or length of a full queue}; see commit_once
-- @include lib: writes(commit_once)
-- @include {dialect}/lib: add_jobs

return commit_once(key, arg, add_jobs)
