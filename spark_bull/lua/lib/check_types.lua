-- @include {dialect}/lib: key_types

-- Fails a script before it has changed anything if one of its keys has another type than its dialect has there: Redis
-- would end the script half way, when a job may have left one state and not come to another.
local function check_types(key)
  for name, expected in pairs(KEY_TYPES) do
    local found = key[name] and redis.call('TYPE', key[name]).ok
    if found and found ~= expected and found ~= 'none' then
      error('WRONGTYPE expected ' .. key[name] .. ' to be a ' .. expected .. ', found a ' .. found, 0)
    end
  end
end
