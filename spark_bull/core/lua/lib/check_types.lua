-- Fails a script, before it has changed anything, because of keys that have another type than its dialect has there, or
-- because of `why`, for which their types could not be read. `expected`: the types of keys. Redis would end the script
-- half way, when a job may have left one state and not come to another.
local function check_types(expected, why)
  for name, kind in pairs(expected) do
    local found = redis.call('TYPE', name).ok
    if found ~= kind and found ~= 'none' then
      error('WRONGTYPE expected ' .. name .. ' to be a ' .. kind .. ', found a ' .. found, 0)
    end
  end
  error(why, 0)
end
