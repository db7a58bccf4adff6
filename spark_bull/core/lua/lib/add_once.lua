-- Jobs of a chunk that are added without a staged write.
-- @include lib: length_limit numbers(time_ms) once

-- Keeps the ids of the jobs of a write in a list: an entry is an array of ids, or {first, last} of numbers that follow
-- each other. `result`: what add_jobs returned. Without `keeps_all` only such numbers are kept: one entry while the
-- numbers of a write follow each other.
local function keep_ids(list, result, keeps_all, ttl_ms)
  local call, ids, entry = redis.call, result.ids, nil
  if result.is_range then
    local newest = call('LINDEX', list, -1)
    local before = newest and cmsgpack.unpack(newest)
    entry = {first = tonumber(ids[1]), last = tonumber(ids[#ids])}
    if before and before.last and before.last + 1 == entry.first then
      call('LSET', list, -1, cmsgpack.pack({first = before.first, last = entry.last}))
      return
    end
  elseif keeps_all then
    entry = ids
  end
  if entry then
    call('RPUSH', list, cmsgpack.pack(entry))
    call('PEXPIRE', list, ttl_ms)
  end
end

-- A reply without added jobs.
local function dropped_rows(from, last, want_ids)
  local ids = {}
  for i = 1, want_ids and last - from + 1 or 0 do
    ids[i] = ''
  end
  return {last + 1, 0, 0, 0, ids, {}, last - from + 1}
end

-- Adds jobs of a chunk, unless this call was answered before.
-- `add_jobs(key, arg, chunk, from, now, keeps_all)` returns {next, added, duplicates, deduplicated (nil: 0), ids,
-- rejected (nil: none), is_range and by_list (see commit_once)}. With the key `kept_ids`, the ids are kept there.
-- Nothing is added, and the call can be repeated, with the replies {'closed'} (the queue accepts no jobs), and {'full',
-- length of the queue} (with `arg.max_length`, '': none).
local function add_once(key, arg, add_jobs)
  return once(key.receipt, arg.number .. ':' .. arg.from, arg.ttl_ms, function()
    if key.intake_closed and redis.call('EXISTS', key.intake_closed) == 1 then
      return {'closed'}, true
    end
    local limit = arg.max_length ~= '' and {max_length = tonumber(arg.max_length), when_full = arg.when_full}
    local length = limit and length_limit.own_length(key, arg.writes)
    if limit and length_limit.has_no_room(limit, length) then
      return {'full', length}, true
    end
    local chunk, from = cmsgpack.unpack(arg.chunk), tonumber(arg.from)
    if limit then
      local verdict, last = length_limit.rows_that_fit(arg.base, limit, length, chunk, from)
      if verdict == 'full' then
        return {'full', length}, true
      elseif verdict == 'drop' then
        return dropped_rows(from, last, arg.want_ids == '1')
      end
      chunk.n = last
    end
    local result = add_jobs(key, arg, chunk, from, time_ms(), key.kept_ids)
    if key.kept_ids then
      for list, part in pairs(result.by_list or {[key.kept_ids] = result}) do
        keep_ids(list, part, true, arg.kept_ids_ttl_ms)
      end
    end
    local ids = arg.want_ids == '1' and result.ids or {}
    return {result.next, result.added, result.duplicates, result.deduplicated or 0, ids, result.rejected or {}}
  end)
end
