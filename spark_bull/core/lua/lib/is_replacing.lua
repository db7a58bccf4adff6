-- Whether an open write has yet to empty the queue before it adds its first job.
local function is_replacing(write)
  local fields = redis.call('HMGET', write, 'state', 'position', 'replace', 'emptied')
  return fields[1] == 'open' and fields[2] == '0' and fields[3] == '1' and not fields[4]
end
