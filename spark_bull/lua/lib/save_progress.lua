-- Whether a stored progress has a checkpoint: an object with the key `checkpoint`.
local function has_checkpoint(progress)
  if not progress or not string.find(progress, '"checkpoint"', 1, true) then
    return false
  end
  local is_json, value = pcall(cjson.decode, progress)
  return is_json and type(value) == 'table' and value.checkpoint ~= nil and value.checkpoint ~= cjson.null
end

-- Stores a job's progress. Returns nil; -1 when the job does not exist; -2 when the lock does not hold `lock_token`,
-- and either the stored progress or the new one has a checkpoint.
local function save_progress(key, arg)
  local call = redis.call
  if call('EXISTS', key.job) == 0 then
    return -1
  end
  -- MGET: a lock of another type is one that does not hold the token.
  if call('MGET', key.lock)[1] ~= arg.lock_token then
    if arg.of_checkpoint == '1' or has_checkpoint(call('HGET', key.job, 'progress')) then
      return -2
    end
  end
  call('HSET', key.job, 'progress', arg.progress)
end
