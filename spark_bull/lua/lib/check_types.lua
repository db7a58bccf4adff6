-- @include {dialect}/lib: key_types

-- For each type, a command that fails for keys of other types. Lua gets its reply, a number, in a fraction of the time
-- that it takes to get the table that TYPE returns.
local READS = {list = 'LLEN', zset = 'ZCARD', set = 'SCARD', hash = 'HLEN', stream = 'XLEN', string = 'STRLEN'}

-- Fails a script before it has changed anything if one of its keys has another type than its dialect has there: Redis
-- would end the script half way, when a job may have left one state and not come to another.
local function check_types(key)
  local read = redis.pcall
  for name, expected in pairs(KEY_TYPES) do
    local found = key[name] and read(READS[expected], key[name])
    if type(found) == 'table' then
      local kind = redis.call('TYPE', key[name]).ok
      if kind == expected or kind == 'none' then
        error(found.err, 0)
      end
      error('WRONGTYPE expected ' .. key[name] .. ' to be a ' .. expected .. ', found a ' .. kind, 0)
    end
  end
end
