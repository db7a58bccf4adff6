-- Adds the next staged flows of a registered write.
-- @keys touched...
-- @returns {state of the write, jobs processed, id of a write that comes first}; see commit_once
-- @include lib: writes(commit_once)
-- @include bullmq/lib: flows(add_flows)

return commit_once(key, arg, add_flows)
