-- @include lib/job_row

-- Whether a ZSET or SET of ids has an id; false for a list.
local function is_sorted(state_key, job_id)
  local kind = redis.call('TYPE', state_key).ok
  if kind == 'zset' then
    return redis.call('ZSCORE', state_key, job_id) ~= false
  end
  return kind == 'set' and redis.call('SISMEMBER', state_key, job_id) == 1
end

-- Whether a key is a job that none of those states has that are ZSETs or SETs, and that is not recorded as damaged. A
-- hash without the fields that every job has is another key.
local function is_unplaced(key, arg, job_id)
  local row = job_row(arg.base .. job_id, 'timestamp', 'data', 'opts')
  if not row or not (row[1] and row[2] and row[3]) or redis.call('HEXISTS', key.damaged, job_id) == 1 then
    return false
  end
  for _, state_key in ipairs(key.states) do
    if is_sorted(state_key, job_id) then
      return false
    end
  end
  return true
end
