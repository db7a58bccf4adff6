-- @include lib: finite_number options_of
-- @include {dialect}/lib: keep_rule settle_jobs

-- Completes or fails jobs that no worker has claimed, and that have left their state: for the moment of the script they
-- are active and locked, so that they end as claimed jobs do. `changes`: {id, key, action, reason or value} of each.
-- Returns the set of the ids of those that have ended.
local function finish_unclaimed(key, arg, changes, now)
  local call, outcomes = redis.call, {token = arg.token, ids = {}, values = {}, keeps = {}, failed = {}}
  for _, change in ipairs(changes) do
    local id, fields = change.id, call('HMGET', change.key, 'opts', 'stacktrace')
    local opts = options_of(fields[1])
    call('RPUSH', key.active, id)
    call('SET', change.key .. ':lock', arg.token)
    if change.action == 'complete' then
      local next_one = #outcomes.ids + 1
      outcomes.ids[next_one], outcomes.values[next_one] = id, change.value or 'null'
      outcomes.keeps[next_one] = keep_rule(opts, 'removeOnComplete') or {}
    else
      outcomes.failed[#outcomes.failed + 1] = {
        id = id,
        reason = change.reason,
        stack = fields[2] or '[]',
        keep = keep_rule(opts, 'removeOnFail'),
        attempts = finite_number(opts.attempts) or 1,
      }
    end
  end
  return settle_jobs(key, arg, outcomes, now).mine
end
