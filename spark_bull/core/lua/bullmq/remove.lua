-- Removes a job and, if `with_children`, its descendants, children before parents. A tree of more than `limit` jobs (or
-- in lists too long for one script to search) takes several calls.
-- @keys completed delayed failed
-- @returns {'done'} (also when only the id existed), {'open'} (call again), {'missing'}, {'scheduled'},
-- {'wrong_state'} (the tree has too many levels), or {'locked', key of the locked job}
-- @include lib: once waiting(WALK_STEPS)
-- @include bullmq/lib: remove(remove_tree)

return once(key.receipt, arg.call, arg.ttl_ms, function()
  local share = {jobs = tonumber(arg.limit), steps = WALK_STEPS, is_first = true}
  return {remove_tree(key, arg, arg.job_id, arg.with_children == '1', share)}
end)
