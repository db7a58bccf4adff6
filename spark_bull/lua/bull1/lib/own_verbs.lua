-- @include bull1/lib/add_jobs
-- @include bull1/lib/enqueue_promoted
-- @include bull1/lib/is_in_set
-- @include bull1/lib/remove_jobs
-- @include bull1/lib/retried
-- @include bull1/lib/settle_jobs

-- The verbs of Bull 1 and 2, whose jobs have no priority; see manage_jobs.
local own_verbs = {
  take = 'SREM',
  is_in = is_in_set,
  retried = retried,
  enqueue_promoted = enqueue_promoted,
  remove_jobs = remove_jobs,
  add_jobs = add_jobs,
  settle_jobs = settle_jobs,
}

function own_verbs.left_queue() end

-- Bull 1 keeps all finished jobs or, of completed ones, none.
function own_verbs.keep_of(opts, name)
  local is_given = name == 'removeOnComplete' and opts[name] and opts[name] ~= cjson.null
  return is_given and {count = 0} or nil
end
