-- @include lib: set_of

local function all_in(set, ids)
  for _, id in ipairs(ids) do
    if not set[id] then
      return false
    end
  end
  return true
end

local function is_reverse(ids, list)
  local count = #ids
  if #list ~= count then
    return false
  end
  for i = 1, count do
    if ids[i] ~= list[count - i + 1] then
      return false
    end
  end
  return true
end

-- Up to this number of jobs behind it for each of its jobs, a chunk counts as near the tail; Lua unpacks 7,000 at most.
local NEAR_TAIL, MOST_MOVED = 8, 7000

-- Removes `count` adjacent jobs of `active`, the last of them at `last`. Near the tail, those behind them are taken off
-- and put back; elsewhere, they are overwritten by a mark and removed by one LREM.
local function remove_adjacent(active, last, count)
  local call = redis.call
  local behind = call('LLEN', active) - 1 - last
  if behind <= math.min(NEAR_TAIL * count, MOST_MOVED) then
    local moved = call('LRANGE', active, last + 1, -1)
    call('LTRIM', active, 0, last - count)
    call('RPUSH', active, unpack(moved))
    return
  end
  for i = last - count + 1, last do
    call('LSET', active, i, '')
  end
  call('LREM', active, -count, '')
end

-- Removes jobs from `active`. The jobs of a chunk are usually adjacent: at the tail when they are the oldest, else at
-- the head, else in between. Others are searched for one by one.
-- Returns the set of those that were not in the list.
local function leave_active(active, ids)
  local call, count = redis.call, #ids
  if count == 0 then
    return {}
  end
  local tail = call('LRANGE', active, -count, -1)
  if is_reverse(ids, tail) then
    call('LTRIM', active, 0, -count - 1)
    return {}
  end
  local wanted = set_of(ids)
  if #tail == count and all_in(wanted, tail) then
    call('LTRIM', active, 0, -count - 1)
    return {}
  end
  local head = call('LRANGE', active, 0, count - 1)
  if #head == count and all_in(wanted, head) then
    call('LTRIM', active, count, -1)
    return {}
  end
  local last = call('LPOS', active, ids[1], 'RANK', -1)
  if last and last >= count - 1 and all_in(wanted, call('LRANGE', active, last - count + 1, last)) then
    remove_adjacent(active, last, count)
    return {}
  end
  local missing = {}
  for _, id in ipairs(ids) do
    if call('LREM', active, -1, id) == 0 then
      missing[id] = true
    end
  end
  return missing
end
