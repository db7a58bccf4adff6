-- Stores a job's progress and publishes it.
-- @returns 0; -1 when the job does not exist; -2 when the lock does not hold `lock_token`, and the stored progress has a
-- checkpoint or `of_checkpoint` is 1
-- @include lib: values(json_of)
-- @include {dialect}/lib: events(announce_progress)

-- Whether a stored progress has a checkpoint: an object with the key `checkpoint`.
local function has_checkpoint(progress)
  if not progress or not string.find(progress, '"checkpoint"', 1, true) then
    return false
  end
  local value = json_of(progress)
  return type(value) == 'table' and value.checkpoint ~= nil and value.checkpoint ~= cjson.null
end

if call('EXISTS', key.job) == 0 then
  return -1
end
-- MGET: a lock of another type is one that does not hold the token.
local is_owned = call('MGET', key.lock)[1] == arg.lock_token
if not is_owned and (arg.of_checkpoint == '1' or has_checkpoint(call('HGET', key.job, 'progress'))) then
  return -2
end
call('HSET', key.job, 'progress', arg.progress)
announce_progress(key, arg)
return 0
