-- Staged writes: their registration, and their jobs.
-- @include lib: add_jobs(keep_ids length_limit queue_length) values(time_ms)

-- Whether an open write has yet to empty the queue before it adds its first job.
local function is_replacing(write)
  local fields = call('HMGET', write, 'state', 'position', 'replace', 'emptied')
  return fields[1] == 'open' and fields[2] == '0' and fields[3] == '1' and not fields[4]
end

-- Closes a write: it leaves `open_writes`, and its record expires later.
local function close_write(key, arg, state, now)
  call('HSET', key.write, 'state', state, 'finishedOn', now)
  call('PEXPIRE', key.write, arg.record_ttl_ms)
  call('ZREM', key.open_writes, arg.write_id)
  -- Those that are only prepared may have been given up.
  local last = call('ZRANGE', key.open_writes, -1, -1, 'WITHSCORES')[2]
  if last and tonumber(last) < 0 then
    call('PEXPIRE', key.open_writes, arg.record_ttl_ms)
  end
  call('ZREMRANGEBYSCORE', key.finished_writes, '-inf', now - arg.record_ttl_ms)
  call('ZADD', key.finished_writes, now, arg.write_id)
  call('PEXPIRE', key.finished_writes, arg.record_ttl_ms)
end

-- A write that can't be finished keeps its remaining stages as long as its record, for inspection.
local function break_write(key, arg, now)
  for _, stage in ipairs(call('LRANGE', key.manifest, 0, -1)) do
    call('PEXPIRE', stage, arg.record_ttl_ms)
  end
  call('PEXPIRE', key.manifest, arg.record_ttl_ms)
  close_write(key, arg, 'broken', now)
end

-- The beginning of the keys of all writes.
local function base_of_writes(key, write_id)
  return key.write:sub(1, -#write_id - 1)
end

-- The open write that has to be finished before this one: any older one when this one replaces the queue, else an older
-- one that has yet to empty the queue, and would remove this one's jobs.
local function write_ahead(key, write_id, replaces)
  local writes = base_of_writes(key, write_id)
  for _, other in ipairs(call('ZRANGE', key.open_writes, 0, -1)) do
    if other == write_id then
      return nil
    end
    local write = writes .. other
    if (replaces and call('HGET', write, 'state') == 'open') or is_replacing(write) then
      return other
    end
  end
end

-- Adds the next jobs of a registered write if its position is `arg.position` (rows processed), so that a call that is
-- sent again changes nothing. The rows leave their stage key in the same script. `add_jobs(key, arg, chunk, from, now,
-- keeps_all)` returns {next, added, duplicates, deduplicated (nil: 0), rejected (nil: none), counts (nil: none; further
-- fields of the write, and what to add to them), ids and is_range (see keep_ids; ids of other queues are in
-- by_list)}.
-- Returns {state, rows processed}; state is 'open', 'finished', 'broken' (staged rows are gone) or 'unknown' (no such
-- write). Before the first row also 'replacing' (the queue has to be emptied first), or {'behind', 0, id of the write
-- that comes first}. With a callback also 'opening' before the first row (it has to be added), and 'closing' after the
-- last one (it may run). With a maximum length also {'full', rows processed, length of the queue}: nothing was added.
local function commit_once(key, arg, add_jobs)
  local write = call('HMGET', key.write, 'state', 'position', 'chunk', 'from', 'callback', 'maxLength', 'whenFull',
    'keepsIds')
  local state, position = write[1], tonumber(write[2])
  if not state then
    return {'unknown', 0}
  end
  if state ~= 'open' or position ~= tonumber(arg.position) then
    return {state, position}
  end
  if position == 0 then
    local replaces = is_replacing(key.write)
    local ahead = write_ahead(key, arg.write_id, replaces)
    if ahead then
      return {'behind', 0, ahead}
    end
    if replaces then
      return {'replacing', 0}
    end
  end
  local callback = write[5] and call('HGET', key.write, 'callbackState')
  if write[5] and not callback then
    return {'opening', position}
  end
  local now = time_ms()
  local stage = call('LINDEX', key.manifest, 0)
  if stage then
    local number, from = write[3], tonumber(write[4])
    -- A write that fails when the queue is full was admitted as a whole when it was registered.
    local limit = write[6] and write[7] ~= 'fail' and {max_length = tonumber(write[6]), when_full = write[7]}
    local length = limit and length_limit.own_length(key, base_of_writes(key, arg.write_id))
    if limit and length_limit.has_no_room(limit, length) then
      return {'full', position, length .. ''}
    end
    local packed = call('HGET', stage, number)
    if not packed then
      break_write(key, arg, now)
      return {'broken', position}
    end
    local chunk = cmsgpack.unpack(packed)
    local rows = chunk.n
    local verdict, last = 'add', rows
    if limit then
      verdict, last = length_limit.rows_that_fit(arg.base, limit, length, chunk, from)
    end
    if verdict == 'full' then
      return {'full', position, length .. ''}
    end
    local result = {next = last + 1, added = 0, duplicates = 0}
    if verdict == 'drop' then
      call('HINCRBY', key.write, 'dropped', last - from + 1)
    else
      chunk.n = last
      result = add_jobs(key, arg, chunk, from, now, write[8])
      for list, part in pairs(result.by_list or {[key.kept_ids] = result}) do
        keep_ids(list, part, write[8], arg.record_ttl_ms)
      end
    end
    position = position + result.next - from
    if result.next > rows then
      call('HDEL', stage, number)
      from, number = 1, number + 1
      if call('EXISTS', stage) == 0 then
        call('LPOP', key.manifest)
        number = 0
      end
    else
      from = result.next
    end
    call('HSET', key.write, 'position', position, 'chunk', number, 'from', from)
    call('HINCRBY', key.write, 'added', result.added)
    call('HINCRBY', key.write, 'duplicates', result.duplicates)
    if (result.deduplicated or 0) > 0 then
      call('HINCRBY', key.write, 'deduplicated', result.deduplicated)
    end
    if #(result.rejected or {}) > 0 then
      call('HINCRBY', key.write, 'rejected', #result.rejected)
    end
    for name, count in pairs(result.counts or {}) do
      call('HINCRBY', key.write, name, count)
    end
  end
  if call('EXISTS', key.manifest) == 0 then
    if callback == 'open' then
      return {'closing', position}
    end
    close_write(key, arg, 'finished', now)
    return {'finished', position}
  end
  return {'open', position}
end

-- The registration of a staged write.

-- Why these queues of a write, or parts of them, can't be registered: the reply of the script, or nil. `plan` has an
-- entry for each: {write, open, watermark or '', stages = {{key, chunks}, …}, intake_closed (key, '': the jobs were added
-- before), shard_layout and epoch ('': no shards), limit (nil: none) = {max_length, jobs, replaces, lists, zsets, writes},
-- see queue_length}.
local function registration_refusal(plan, version)
  local checks = {
    function(entry)
      local done = entry.watermark ~= '' and call('GET', entry.watermark)
      return done and tonumber(done) >= tonumber(version) and {'replayed'}
    end,
    function(entry)
      local layout = entry.shard_layout
      return layout ~= '' and call('HGET', layout, 'epoch') ~= entry.epoch and {'resharded'}
    end,
    function(entry)
      for _, stage in ipairs(entry.stages) do
        if call('HLEN', stage.key) ~= stage.chunks then
          return {'lost', stage.key}
        end
      end
    end,
    function(entry)
      return entry.intake_closed ~= '' and call('EXISTS', entry.intake_closed) == 1 and {'closed', entry.queue}
    end,
    function(entry)
      local limit = entry.limit
      -- The jobs of a prepared write are part of the length.
      if not limit or call('EXISTS', entry.write) == 1 then
        return nil
      end
      -- A write that replaces the queue finds it empty.
      local length = limit.replaces and 0 or queue_length(limit.lists, limit.zsets, entry.open, limit.writes)
      return length + limit.jobs > limit.max_length and {'full', entry.queue, length}
    end,
  }
  for _, check in ipairs(checks) do
    for _, entry in ipairs(plan) do
      local refusal = check(entry)
      if refusal then
        return refusal
      end
    end
  end
end

-- More writes than this are never prepared in a queue at the same time, unless their programs died.
local MOST_PREPARED = 1000

-- Marks other prepared writes of the same application and version in the queue as superseded: only one of them may add
-- the rows. Later versions do not matter, as a confirmed write may be opened after them.
local function supersede(open, write, write_id)
  local own, writes = call('HMGET', write, 'appId', 'version'), write:sub(1, -#write_id - 1)
  -- The scores of writes that are only prepared are negative.
  for _, other in ipairs(own[1] and call('ZRANGEBYSCORE', open, '-inf', '(0', 'LIMIT', 0, MOST_PREPARED) or {}) do
    local found = call('HMGET', writes .. other, 'state', 'appId', 'version')
    if found[1] == 'prepared' and found[2] == own[1] and found[3] == own[2] then
      call('HSET', writes .. other, 'superseded', 1)
    end
  end
end

-- Adds a registered write to the open writes of its queue. They are committed in the order of their registration, also
-- when the clock is put back.
local function list_open_write(open, write, write_id)
  supersede(open, write, write_id)
  local now, last = time_ms(), call('ZRANGE', open, -1, -1, 'WITHSCORES')[2]
  call('ZADD', open, last and math.max(now, tonumber(last) + 1) or now, write_id)
  call('PERSIST', open)
end
