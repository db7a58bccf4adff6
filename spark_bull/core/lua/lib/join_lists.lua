-- Merges `wait` and `paused` into one list and renames it to `target`; jobs of `paused` come first, as they are older.
-- The shorter list is moved into the longer one, `limit` jobs per call; no list is renamed over another one.
-- Returns the number of jobs left in the shorter one.
local function join_lists(key, target, limit)
  local call = redis.call
  local waiting, paused = call('LLEN', key.wait), call('LLEN', key.paused)
  local moved = {}
  if waiting > paused then
    moved = call('LRANGE', key.paused, 0, limit - 1)
    if #moved > 0 then
      call('RPUSH', key.wait, unpack(moved))
      call('LTRIM', key.paused, #moved, -1)
    end
  else
    local last = call('LRANGE', key.wait, -limit, -1)
    for i = #last, 1, -1 do
      moved[#moved + 1] = last[i]
    end
    if #moved > 0 then
      call('LPUSH', key.paused, unpack(moved))
      call('LTRIM', key.wait, 0, -#moved - 1)
    end
  end
  local left = math.min(waiting, paused) - #moved
  local other = target == key.wait and key.paused or key.wait
  if left == 0 and call('EXISTS', other) == 1 then
    call('RENAME', other, target)
  end
  return left
end
