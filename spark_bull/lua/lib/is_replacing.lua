-- Whether an open write still has to empty the queue, before its first job comes.
local function is_replacing(write)
  local fields = redis.call('HMGET', write, 'state', 'position', 'replace', 'emptied')
  return fields[1] == 'open' and fields[2] == '0' and fields[3] == '1' and not fields[4]
end
