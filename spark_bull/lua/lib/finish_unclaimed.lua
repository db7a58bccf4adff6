-- @include lib: options_of
-- @include {dialect}/lib: keep_rule settle_jobs

-- Completes or fails a job that no worker has claimed, and that has left its state: for the moment of the script it is
-- active and locked, so that it ends as a claimed job does. `change`: {id, key, action, reason or value}.
-- Returns 'done' or 'wrong_state'.
local function finish_unclaimed(key, arg, change, now)
  local call, id = redis.call, change.id
  local fields = call('HMGET', change.key, 'opts', 'stacktrace')
  local opts = options_of(fields[1])
  call('RPUSH', key.active, id)
  call('SET', change.key .. ':lock', arg.token)
  local outcomes = {token = arg.token}
  if change.action == 'complete' then
    outcomes.ids, outcomes.values, outcomes.keeps = {id}, {change.value or 'null'}, {keep_rule(opts, 'removeOnComplete')}
  else
    outcomes.failed = {{
      id = id,
      reason = change.reason,
      stack = fields[2] or '[]',
      keep = keep_rule(opts, 'removeOnFail'),
      attempts = tonumber(opts.attempts) or 1,
    }}
  end
  return settle_jobs(key, arg, outcomes, now).mine[id] and 'done' or 'wrong_state'
end
